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
    let name = match host {
        Host::Address(address) => ServerName::IpAddress((*address).into()),
        Host::Name(name) => ServerName::try_from(name.trim_end_matches('.').to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
    };
    let config = Arc::clone(CONFIG.get_or_init(|| Arc::new(config())));
    TlsConnector::from(config).connect(name, stream).await
}

/// The system's roots (`SSL_CERT_FILE` and `SSL_CERT_DIR` count); where a container has none, Mozilla's.
fn config() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}
