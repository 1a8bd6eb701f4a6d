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
    static uint32_t tailrace_crc_fast(uint32_t crc, const uint8_t *data, int64_t size) {
        for (; size >= 8; size -= 8, data += 8) {
            uint64_t word;
            memcpy(&word, data, 8);
            crc = (uint32_t)TAILRACE_CRC_8(crc, word);
        }
        while (size-- > 0) crc = TAILRACE_CRC_1(crc, *data++);
        return crc;
    }
    #endif

    static uint32_t tailrace_crc(uint32_t crc, const uint8_t *data, int64_t size) {
    #ifdef TAILRACE_CRC_TARGET
        if (TAILRACE_HAS_CRC()) return tailrace_crc_fast(crc, data, size);
    #endif
        return tailrace_crc_slow(crc, data, size);
    }
    """
    uint32_t tailrace_crc(uint32_t crc, const uint8_t *data, int64 size) noexcept nogil

cdef int64 _START
@cython.locals(crc=int64)
cdef int64 crc32c(Octets data, int64 position, int64 limit) noexcept nogil
