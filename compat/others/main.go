// Go clients at work: `others LIBRARY COMMAND BOOTSTRAP ... NAME=VALUE ...`; compat/others.py says
// what each command does.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

const (
	idle     = 3 * time.Second  // without a record for so long, a reader has read everything
	patience = 30 * time.Second // for other calls, and for the first record of a transformation
	pause    = 100 * time.Millisecond
)

type client interface {
	produce(bootstrap, topic string, count int) error
	consume(bootstrap, topic, group string, patience time.Duration) error
	transform(bootstrap, from, to, group string) error
	transact(bootstrap, topic string, count int) error
	trickle(bootstrap, topic string, count int) error
}

func main() {
	library, command, bootstrap, rest := os.Args[1], os.Args[2], os.Args[3], take(os.Args[4:])
	chosen := map[string]client{"franz-go": franz{}, "sarama": saramaClient{}}[library]
	var err error
	switch command {
	case "produce":
		count, _ := strconv.Atoi(rest[1])
		err = chosen.produce(bootstrap, rest[0], count)
	case "consume":
		seconds, _ := strconv.Atoi(rest[2])
		err = chosen.consume(bootstrap, rest[0], rest[1], time.Duration(seconds)*time.Second)
	case "exchange":
		count, _ := strconv.Atoi(rest[2])
		if err = chosen.produce(bootstrap, rest[0], count); err == nil {
			err = chosen.consume(bootstrap, rest[0], rest[1], patience)
		}
	case "transform":
		err = chosen.transform(bootstrap, rest[0], rest[1], rest[2])
	case "transact":
		count, _ := strconv.Atoi(rest[1])
		err = chosen.transact(bootstrap, rest[0], count)
	case "trickle":
		count, _ := strconv.Atoi(rest[1])
		err = chosen.trickle(bootstrap, rest[0], count)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func key(number int) []byte { return []byte(fmt.Sprintf("key %d", number%10)) }

func show(partition int32, offset int64, value []byte) {
	fmt.Printf("%d %d %s\n", partition, offset, value)
}
