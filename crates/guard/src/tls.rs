//! TLS for check services, set up only when one is asked over https: the roots cost megabytes and milliseconds.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::env::Host;

static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();

/// Speaks TLS on the stream and verifies that the other side is the host.
///
/// # Errors
/// What the handshake or the certificate's check says.
pub(crate) async fn connect(stream: TcpStream, host: &Host) -> io::Result<TlsStream<TcpStream>> {
    let config = Arc::clone(CONFIG.get_or_init(|| Arc::new(config(roots()))));
    connect_with(config, stream, host).await
}

async fn connect_with(
    config: Arc<ClientConfig>,
    stream: TcpStream,
    host: &Host,
) -> io::Result<TlsStream<TcpStream>> {
    let name = match host {
        Host::Address(address) => ServerName::IpAddress((*address).into()),
        Host::Name(name) => ServerName::try_from(name.trim_end_matches('.').to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
    };
    TlsConnector::from(config).connect(name, stream).await
}

/// The system's roots (`SSL_CERT_FILE` and `SSL_CERT_DIR` count); where a container has none, Mozilla's.
fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

fn config(roots: RootCertStore) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;

    fn issuer() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an issuer")
    }

    /// A server on the loopback whose certificate is for this name; it sends `hello`.
    async fn server(name: &str, issuer: &CertifiedIssuer<'static, KeyPair>) -> SocketAddr {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, issuer).expect("a certificate");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .expect("a server's configuration");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback");
        let address = listener.local_addr().expect("its address");
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a client");
            if let Ok(mut stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await {
                let _ = stream.write_all(b"hello").await;
            }
        });
        address
    }

    async fn ask(
        server: SocketAddr,
        name: &str,
        trusted: &CertifiedIssuer<'static, KeyPair>,
    ) -> io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.der().clone()).expect("a root");
        let stream = TcpStream::connect(server).await?;
        let host = match name.parse() {
            Ok(address) => Host::Address(address),
            Err(_) => Host::Name(name.to_owned()),
        };
        let mut stream = connect_with(Arc::new(config(roots)), stream, &host).await?;
        let mut said = [0; 5];
        stream.read_exact(&mut said).await?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    #[tokio::test]
    async fn a_service_is_believed_if_its_certificate_is_for_its_name_and_of_a_trusted_issuer() {
        let (trusted, other) = (issuer(), issuer());
        for (certified, asked, by, believed) in [
            ("echo.lab.example", "echo.lab.example", &trusted, true),
            ("203.0.113.9", "203.0.113.9", &trusted, true),
            ("other.lab.example", "echo.lab.example", &trusted, false),
            ("203.0.113.10", "203.0.113.9", &trusted, false),
            ("echo.lab.example", "echo.lab.example", &other, false),
        ] {
            let address = server(certified, by).await;
            let answer = ask(address, asked, &trusted).await;
            assert_eq!(answer.is_ok(), believed, "{certified} for {asked}: {answer:?}");
        }
    }

    #[test]
    fn there_are_roots_with_or_without_the_systems() {
        assert!(!roots().is_empty());
    }
}
