package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct{}

func (franz) produce(bootstrap, topic string, count int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, count)
	for number := range records {
		records[number] = &kgo.Record{Key: key(number), Value: []byte(strconv.Itoa(number))}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return client.ProduceSync(ctx, records...).FirstErr()
}

func member(bootstrap, topic, group string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
	}
}

func poll(poller func(context.Context) kgo.Fetches, wait time.Duration) (kgo.Fetches, bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	fetches := poller(ctx)
	if err := fetches.Err0(); errors.Is(err, context.DeadlineExceeded) {
		return fetches, true, nil
	} else if err != nil {
		return fetches, false, err
	}
	for _, each := range fetches.Errors() {
		return fetches, false, each.Err
	}
	return fetches, false, nil
}

func (franz) consume(bootstrap, topic, group string, patience time.Duration) error {
	client, err := kgo.NewClient(member(bootstrap, topic, group)...)
	if err != nil {
		return err
	}
	defer client.Close()
	for wait := patience; ; wait = idle {
		fetches, over, err := poll(client.PollFetches, wait)
		if err != nil || over {
			return err
		}
		fetches.EachRecord(func(each *kgo.Record) { show(each.Partition, each.Offset, each.Value) })
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			return err
		}
	}
}

func (franz) transform(bootstrap, from, to, group string) error {
	session, err := kgo.NewGroupTransactSession(append(
		member(bootstrap, from, group),
		kgo.TransactionalID(group),
		kgo.DefaultProduceTopic(to),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	wait := patience
	for turn := 1; ; turn++ {
		fetches, over, err := poll(session.PollFetches, wait)
		if err != nil || over {
			return err
		}
		wait = idle
		if err := session.Begin(); err != nil {
			return err
		}
		failed := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(each *kgo.Record) {
			record := &kgo.Record{Key: each.Key, Value: append([]byte("t"), each.Value...)}
			session.Produce(context.Background(), record, failed.Promise())
		})
		how := kgo.TransactionEndTry(failed.Err() == nil && turn%3 != 1)
		if _, err := session.End(context.Background(), how); err != nil {
			return err
		}
	}
}

func (franz) transact(bootstrap, topic string, count int) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.TransactionalID(topic),
		kgo.DefaultProduceTopic(topic),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	for number := 0; number < count; number++ {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		committed := &kgo.Record{Value: []byte("c" + strconv.Itoa(number))}
		if err := client.ProduceSync(ctx, committed).FirstErr(); err != nil {
			return err
		}
		if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
			return err
		}
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		aborted := &kgo.Record{Value: []byte("a" + strconv.Itoa(number))}
		client.Produce(ctx, aborted, nil)
		if err := client.AbortBufferedRecords(ctx); err != nil {
			return err
		}
		if err := client.EndTransaction(ctx, kgo.TryAbort); err != nil {
			return err
		}
	}
	return nil
}
