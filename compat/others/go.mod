module tailrace/compat/others

go 1.24

require (
	github.com/IBM/sarama v1.61.1
	github.com/jcmturner/gokrb5/v8 v8.4.4
	github.com/twmb/franz-go v1.22.2
	github.com/twmb/franz-go/pkg/sasl/kerberos v1.1.0
	github.com/xdg-go/scram v1.1.2
)
