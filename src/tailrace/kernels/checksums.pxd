cimport cython
from libc.stdint cimport int64_t, uint32_t, uint8_t
from tailrace.kernels.memory cimport Octets, int64

# One instruction for 8 bytes on x86-64 with SSE 4.2 (any since 2008) and on ARM with the CRC
# extension (any since ARMv8.1); elsewhere bit by bit, which takes fifty times as long.
cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__)
      #include <nmmintrin.h>
      #ifdef __clang__
        #define TAILRACE_CRC_TARGET __attribute__((target("crc32")))
      #else
        #define TAILRACE_CRC_TARGET __attribute__((target("sse4.2")))
      #endif
      #define TAILRACE_HAS_CRC() __builtin_cpu_supports("sse4.2")
      #define TAILRACE_CRC_8(crc, word) _mm_crc32_u64(crc, word)
      #define TAILRACE_CRC_1(crc, byte) _mm_crc32_u8(crc, byte)
    #elif defined(__aarch64__)
      #ifdef __linux__
        #include <sys/auxv.h>
        #define TAILRACE_HAS_CRC() ((getauxval(AT_HWCAP) & (1 << 7)) != 0)
      #else
        #define TAILRACE_HAS_CRC() 1
      #endif
      #define TAILRACE_CRC_TARGET
      static inline uint32_t tailrace_crc_8(uint32_t crc, uint64_t word) {
          __asm__(".arch_extension crc\\n\\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
          return crc;
      }
      static inline uint32_t tailrace_crc_1(uint32_t crc, uint8_t byte) {
          __asm__(".arch_extension crc\\n\\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
          return crc;
      }
      #define TAILRACE_CRC_8(crc, word) tailrace_crc_8(crc, word)
      #define TAILRACE_CRC_1(crc, byte) tailrace_crc_1(crc, byte)
    #endif

    static uint32_t tailrace_crc_slow(uint32_t crc, const uint8_t *data, int64_t size) {
        while (size-- > 0) {
            crc ^= *data++;
            for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82F63B78u & -(crc & 1));
        }
        return crc;
    }

    #ifdef TAILRACE_CRC_TARGET
    TAILRACE_CRC_TARGET
    static uint32_t tailrace_crc_serial(uint32_t crc, const uint8_t *data, int64_t size) {
        for (; size >= 8; size -= 8, data += 8) {
            uint64_t word;
            memcpy(&word, data, 8);
            crc = (uint32_t)TAILRACE_CRC_8(crc, word);
        }
        while (size-- > 0) crc = TAILRACE_CRC_1(crc, *data++);
        return crc;
    }

    // The instruction takes three cycles, and a processor begins one in each. So long data is
    // checksummed in three lanes at once. A lane's checksum is moved over the next lane by a table:
    // CRCs are linear, so each half byte of one becomes what it is after a lane of zeros.
    #define TAILRACE_CRC_LANE 512
    static uint32_t tailrace_crc_after_lane[8][16];

    static void tailrace_crc_begin(void) {
        static const uint8_t zeros[TAILRACE_CRC_LANE];
        if (!TAILRACE_HAS_CRC()) return;
        for (int place = 0; place < 8; place++)
            for (uint32_t half = 0; half < 16; half++)
                tailrace_crc_after_lane[place][half] =
                    tailrace_crc_serial(half << (4 * place), zeros, TAILRACE_CRC_LANE);
    }

    static inline uint32_t tailrace_crc_moved(uint32_t crc) {
        uint32_t moved = 0;
        for (int place = 0; place < 8; place++, crc >>= 4)
            moved ^= tailrace_crc_after_lane[place][crc & 15];
        return moved;
    }

    TAILRACE_CRC_TARGET
    static uint32_t tailrace_crc_fast(uint32_t crc, const uint8_t *data, int64_t size) {
        const int64_t lane = TAILRACE_CRC_LANE;
        for (; size >= 3 * lane; size -= 3 * lane, data += 3 * lane) {
            uint32_t second = 0, third = 0;
            for (int64_t at = 0; at < lane; at += 8) {
                uint64_t words[3];
                memcpy(&words[0], data + at, 8);
                memcpy(&words[1], data + lane + at, 8);
                memcpy(&words[2], data + 2 * lane + at, 8);
                crc = (uint32_t)TAILRACE_CRC_8(crc, words[0]);
                second = (uint32_t)TAILRACE_CRC_8(second, words[1]);
                third = (uint32_t)TAILRACE_CRC_8(third, words[2]);
            }
            crc = tailrace_crc_moved(tailrace_crc_moved(crc) ^ second) ^ third;
        }
        return tailrace_crc_serial(crc, data, size);
    }
    #else
    static void tailrace_crc_begin(void) {}
    #endif

    static uint32_t tailrace_crc(uint32_t crc, const uint8_t *data, int64_t size) {
    #ifdef TAILRACE_CRC_TARGET
        if (TAILRACE_HAS_CRC()) return tailrace_crc_fast(crc, data, size);
    #endif
        return tailrace_crc_slow(crc, data, size);
    }
    """
    void tailrace_crc_begin() noexcept nogil
    uint32_t tailrace_crc(uint32_t crc, const uint8_t *data, int64 size) noexcept nogil

cdef int64 _START
@cython.locals(crc=int64)
cdef int64 crc32c(Octets data, int64 position, int64 limit) noexcept nogil
