//! krafka at work: `krafka-at-work COMMAND BOOTSTRAP ... NAME=VALUE ...`; compat/others.py says what
//! each command does.

use krafka::auth::{AuthConfig, TlsConfig};
use krafka::consumer::{AutoOffsetReset, IsolationLevel};
use krafka::{Kafka, Record};
use std::collections::HashMap;
use std::time::Duration;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const IDLE: Duration = Duration::from_secs(3);
const PATIENCE_SECONDS: u64 = 30;
const PAUSE: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() {
    let (settings, arguments): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|each| each.contains('='));
    if let Err(error) = run(&arguments, &settings).await {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

async fn run(arguments: &[String], settings: &[String]) -> Outcome {
    let given: HashMap<_, _> = settings.iter().filter_map(|each| each.split_once('=')).collect();
    let kafka = Kafka::builder(&arguments[1]).security(security(&given)?).connect().await?;
    let topic = &arguments[2];
    match arguments[0].as_str() {
        "produce" => produce(&kafka, topic, arguments[3].parse()?).await,
        "consume" => consume(&kafka, topic, &arguments[3], arguments[4].parse()?).await,
        "exchange" => {
            produce(&kafka, topic, arguments[4].parse()?).await?;
            consume(&kafka, topic, &arguments[3], PATIENCE_SECONDS).await
        }
        "trickle" => trickle(&kafka, topic, arguments[3].parse()?).await,
        other => Err(other.into()),
    }
}

fn security(given: &HashMap<&str, &str>) -> Outcome<AuthConfig> {
    let get = |name| given.get(name).copied().unwrap_or_default();
    let (user, password) = (get("sasl.username"), get("sasl.password"));
    let login = match get("sasl.mechanism") {
        "" => None,
        "PLAIN" => Some(AuthConfig::sasl_plain(user, password)),
        "SCRAM-SHA-256" => Some(AuthConfig::sasl_scram_sha256(user, password)),
        "SCRAM-SHA-512" => Some(AuthConfig::sasl_scram_sha512(user, password)),
        "OAUTHBEARER" => {
            let path = get("sasl.oauthbearer.token.endpoint.url").replace("file://", "");
            Some(AuthConfig::sasl_oauthbearer(std::fs::read_to_string(path)?.trim()))
        }
        other => return Err(format!("krafka has no {other}").into()),
    };
    if !get("security.protocol").ends_with("SSL") {
        return Ok(login.unwrap_or_else(AuthConfig::plaintext));
    }
    let mut tls = TlsConfig::new().with_ca_cert(get("ssl.truststore.location"));
    if let Some(store) = given.get("ssl.keystore.location") {
        tls = tls.with_client_cert(*store, *store);
    }
    Ok(match login {
        Some(login) => login.with_tls(tls),
        None => AuthConfig::ssl(tls),
    })
}

async fn produce(kafka: &Kafka, topic: &str, count: usize) -> Outcome {
    let producer = kafka.producer().build().await?;
    let mut sent = Vec::new();
    for number in 0..count {
        let record = Record::new(topic, number.to_string()).key(format!("key {}", number % 10));
        sent.push(producer.enqueue(record).await?);
    }
    for each in sent {
        let _ = each.await?;
    }
    Ok(producer.close().await?)
}

async fn trickle(kafka: &Kafka, topic: &str, count: usize) -> Outcome {
    let producer = kafka.producer().build().await?;
    for number in 0..count {
        let _ = producer.send(Record::new(topic, number.to_string())).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(producer.close().await?)
}

async fn consume(kafka: &Kafka, topic: &str, group: &str, seconds: u64) -> Outcome {
    let consumer = kafka
        .consumer(group)
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .isolation_level(IsolationLevel::ReadCommitted)
        .enable_auto_commit(false)
        .build()
        .await?;
    consumer.subscribe([topic]).await?;
    let mut found = consumer.poll(Duration::from_secs(seconds)).await?;
    while !found.is_empty() {
        for each in &found {
            let value = String::from_utf8_lossy(each.value.as_deref().unwrap_or_default());
            println!("{} {} {value}", each.partition, each.offset);
        }
        consumer.commit().await?;
        found = consumer.poll(IDLE).await?;
    }
    Ok(consumer.close().await?)
}
