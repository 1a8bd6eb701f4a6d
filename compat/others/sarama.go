package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

type saramaClient struct{}

func settings() (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	// By default it gives a record up after three retries in 0.3 s, and a transaction that begins
	// while the markers of the one before are written after 50 in one second. Kafka answers alike: an
	// election, or a machine with a load of 20, takes longer.
	config.Producer.Retry.Max = 200
	config.Producer.Transaction.Retry.Max = 1000
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return config, secure(config)
}

// Adds the settings of the command line.
func secure(config *sarama.Config) (err error) {
	config.Net.TLS.Config, err = encryption()
	config.Net.TLS.Enable = config.Net.TLS.Config != nil
	mechanism, sasl := given["sasl.mechanism"], &config.Net.SASL
	sasl.Enable = mechanism != ""
	sasl.Mechanism = sarama.SASLMechanism(mechanism)
	sasl.User, sasl.Password = given["sasl.username"], given["sasl.password"]
	switch mechanism {
	case "SCRAM-SHA-256":
		sasl.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA256} }
	case "SCRAM-SHA-512":
		sasl.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA512} }
	case "OAUTHBEARER":
		sasl.TokenProvider = tokens{}
	case "GSSAPI":
		sasl.GSSAPI.AuthType = sarama.KRB5_KEYTAB_AUTH
		sasl.GSSAPI.KerberosConfigPath = os.Getenv("KRB5_CONFIG")
		sasl.GSSAPI.KeyTabPath = given["sasl.kerberos.keytab"]
		sasl.GSSAPI.ServiceName = given["sasl.kerberos.service.name"]
		sasl.GSSAPI.Username, sasl.GSSAPI.Realm = principal()
	}
	return err
}

type tokens struct{}

func (tokens) Token() (*sarama.AccessToken, error) {
	text, err := token()
	return &sarama.AccessToken{Token: text}, err
}

// A login by SCRAM, which sarama leaves to another library.
type scramClient struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

func (saramaClient) produce(bootstrap, topic string, count int) error {
	config, err := settings()
	if err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer(strings.Split(bootstrap, ","), config)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, count)
	for number := range messages {
		messages[number] = &sarama.ProducerMessage{
			Topic: topic,
			Key:   sarama.ByteEncoder(key(number)),
			Value: sarama.StringEncoder(strconv.Itoa(number)),
		}
	}
	err = producer.SendMessages(messages)
	// It says how many have failed, and not why.
	if failed := (sarama.ProducerErrors)(nil); errors.As(err, &failed) {
		return failed[0].Err
	}
	return err
}

func (saramaClient) trickle(bootstrap, topic string, count int) error {
	config, err := settings()
	if err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer(strings.Split(bootstrap, ","), config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for number := 0; number < count; number++ {
		value := sarama.StringEncoder(strconv.Itoa(number))
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: value}); err != nil {
			return err
		}
		time.Sleep(pause)
	}
	return nil
}

// A handler gathers what the claims give, and hands it to one function at a time.
type handler struct {
	take   func(sarama.ConsumerGroupSession, []*sarama.ConsumerMessage) error
	came   chan struct{}
	lock   chan struct{}
	failed chan error
}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h handler) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for {
		select {
		case first, open := <-claim.Messages():
			if !open {
				return nil
			}
			found := []*sarama.ConsumerMessage{first}
			for len(found) < 50 && len(claim.Messages()) > 0 {
				found = append(found, <-claim.Messages())
			}
			h.lock <- struct{}{}
			if session.Context().Err() == nil {
				if err := h.take(session, found); err != nil {
					h.failed <- err
				}
			}
			<-h.lock
			h.came <- struct{}{}
		case <-session.Context().Done():
			return nil
		}
	}
}

func join(
	bootstrap, topic, group string, patience time.Duration,
	take func(sarama.ConsumerGroupSession, []*sarama.ConsumerMessage) error,
) error {
	config, err := settings()
	if err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerGroup(strings.Split(bootstrap, ","), group, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h := handler{take, make(chan struct{}, 1000), make(chan struct{}, 1), make(chan error, 1000)}
	go func() {
		for ctx.Err() == nil {
			if err := consumer.Consume(ctx, []string{topic}, h); err != nil {
				h.failed <- err
			}
		}
	}()
	for wait := patience; ; wait = idle {
		select {
		case <-h.came:
		case err := <-h.failed:
			return err
		case <-time.After(wait):
			// Fifty records that are sent one by one take longer on a machine with a load.
			select {
			case h.lock <- struct{}{}:
				<-h.lock
				if len(h.came) == 0 {
					return nil
				}
			default:
			}
		}
	}
}

func (saramaClient) consume(bootstrap, topic, group string, patience time.Duration) error {
	return join(bootstrap, topic, group, patience,
		func(session sarama.ConsumerGroupSession, found []*sarama.ConsumerMessage) error {
			for _, each := range found {
				show(each.Partition, each.Offset, each.Value)
				session.MarkMessage(each, "")
			}
			session.Commit()
			return nil
		})
}

func (saramaClient) transform(bootstrap, from, to, group string) error {
	config, err := settings()
	if err != nil {
		return err
	}
	config.Producer.Transaction.ID = group
	producer, err := sarama.NewSyncProducer(strings.Split(bootstrap, ","), config)
	if err != nil {
		return err
	}
	defer producer.Close()
	turn := 0
	return join(bootstrap, from, group, patience,
		func(session sarama.ConsumerGroupSession, found []*sarama.ConsumerMessage) error {
			// What is aborted is done again at once, in a second transaction.
			for turn++; ; turn++ {
				if err := producer.BeginTxn(); err != nil {
					return err
				}
				for _, each := range found {
					_, _, err := producer.SendMessage(&sarama.ProducerMessage{
						Topic: to,
						Key:   sarama.ByteEncoder(each.Key),
						Value: sarama.ByteEncoder(append([]byte("t"), each.Value...)),
					})
					if err != nil {
						return err
					}
				}
				last := found[len(found)-1]
				if err := producer.AddMessageToTxn(last, group, nil); err != nil {
					return err
				}
				if turn%3 != 1 {
					return producer.CommitTxn()
				}
				if err := producer.AbortTxn(); err != nil {
					return err
				}
			}
		})
}

func (saramaClient) transact(bootstrap, topic string, count int) error {
	config, err := settings()
	if err != nil {
		return err
	}
	config.Producer.Transaction.ID = topic
	config.Producer.Transaction.Retry.Backoff = 5 * time.Millisecond
	producer, err := sarama.NewSyncProducer(strings.Split(bootstrap, ","), config)
	if err != nil {
		return err
	}
	defer producer.Close()
	send := func(value string) error {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		_, _, err := producer.SendMessage(
			&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
		return err
	}
	for number := 0; number < count; number++ {
		if err := send("c" + strconv.Itoa(number)); err != nil {
			return err
		}
		if err := producer.CommitTxn(); err != nil {
			return err
		}
		if err := send("a" + strconv.Itoa(number)); err != nil {
			return err
		}
		if err := producer.AbortTxn(); err != nil {
			return err
		}
	}
	return nil
}
