package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	krb5 "github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type franz struct{}

// A client with the settings of the command line, which can connect.
func connect(bootstrap string, more ...kgo.Opt) (*kgo.Client, error) {
	options, err := with(bootstrap, more...)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	// Sends wait for a broker and lose its error, if it is not asked before them.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// The options with those that the command line asks for.
func with(bootstrap string, more ...kgo.Opt) ([]kgo.Opt, error) {
	options := append(more, kgo.SeedBrokers(strings.Split(bootstrap, ",")...))
	if config, err := encryption(); err != nil {
		return nil, err
	} else if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	user, password := given["sasl.username"], given["sasl.password"]
	switch given["sasl.mechanism"] {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			text, err := token()
			return oauth.Auth{Token: text}, err
		})))
	case "GSSAPI":
		ticket, err := ticket()
		if err != nil {
			return nil, err
		}
		service := given["sasl.kerberos.service.name"]
		options = append(options, kgo.SASL(kerberos.Auth{
			Client: ticket, Service: service, PersistAfterAuth: true,
		}.AsMechanism()))
	}
	return options, nil
}

// A client of Kerberos with the keytab of the settings.
func ticket() (*krb5.Client, error) {
	config, err := config.Load(os.Getenv("KRB5_CONFIG"))
	if err != nil {
		return nil, err
	}
	keys, err := keytab.Load(given["sasl.kerberos.keytab"])
	if err != nil {
		return nil, err
	}
	user, realm := principal()
	return krb5.NewWithKeytab(user, realm, keys, config), nil
}

func (franz) produce(bootstrap, topic string, count int) error {
	client, err := connect(bootstrap, kgo.DefaultProduceTopic(topic))
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

func (franz) trickle(bootstrap, topic string, count int) error {
	client, err := connect(bootstrap, kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	for number := 0; number < count; number++ {
		record := &kgo.Record{Value: []byte(strconv.Itoa(number))}
		if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
			return err
		}
		time.Sleep(pause)
	}
	return nil
}

func member(topic, group string) []kgo.Opt {
	return []kgo.Opt{
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
	client, err := connect(bootstrap, member(topic, group)...)
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
	options, err := with(bootstrap, append(
		member(from, group),
		kgo.TransactionalID(group),
		kgo.DefaultProduceTopic(to),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(options...)
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
	client, err := connect(
		bootstrap,
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
