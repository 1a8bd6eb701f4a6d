package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

// The settings of the command line, by Kafka's names; compat/secured_clients.py has them all.
var given = map[string]string{}

// Notes the settings among the arguments, and returns the other ones.
func take(arguments []string) (rest []string) {
	for _, each := range arguments {
		if name, value, isSetting := strings.Cut(each, "="); isSetting {
			given[name] = value
		} else {
			rest = append(rest, each)
		}
	}
	return rest
}

// The encryption that the settings ask for, nil for none.
func encryption() (*tls.Config, error) {
	if !strings.HasSuffix(given["security.protocol"], "SSL") {
		return nil, nil
	}
	authorities, err := os.ReadFile(given["ssl.truststore.location"])
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s has no certificate", given["ssl.truststore.location"])
	}
	if store := given["ssl.keystore.location"]; store != "" {
		own, err := tls.LoadX509KeyPair(store, store)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// The token that Java reads from the same file.
func token() (string, error) {
	path := strings.TrimPrefix(given["sasl.oauthbearer.token.endpoint.url"], "file://")
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// The user and the realm of a Kerberos principal.
func principal() (user, realm string) {
	user, realm, _ = strings.Cut(given["sasl.kerberos.principal"], "@")
	return user, realm
}
