//! The way that the workload's packets will take, and a TCP connection along it. A probe or a check that went another
//! way would prove nothing, and would itself be a leak.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest head of an answer to `CONNECT` that is read.
const MAX_CONNECT_HEAD: usize = 4096;

/// A way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// The kernel's routes, wherever they lead: the normal route.
    Normal,
    /// The kernel's routes, which have to lead into the tailnet interface: packets get one of these source addresses,
    /// the node's own in the tailnet.
    Tailnet(Vec<IpAddr>),
    /// tailscaled's SOCKS5 listener.
    Socks5(SocketAddr),
    /// tailscaled's HTTP proxy.
    HttpProxy(SocketAddr),
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("the normal route"),
            Self::Tailnet(_) => f.write_str("the tailnet interface"),
            Self::Socks5(listener) => write!(f, "the SOCKS5 listener {listener}"),
            Self::HttpProxy(listener) => write!(f, "the HTTP proxy {listener}"),
        }
    }
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum PathError {
    /// Packets to the target would leave by another interface than the tailnet's. Nothing was sent.
    #[error("packets to {target} would leave from {source_address}, past the tailnet interface")]
    Bypass {
        /// Where to.
        target: IpAddr,
        /// The source address that the kernel would choose.
        source_address: IpAddr,
    },
    /// The kernel has no route, or the connection failed.
    #[error("cannot connect to {target}")]
    Connect {
        /// Where to.
        target: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The proxy cannot be reached or does not speak its protocol.
    #[error("the proxy {proxy} does not answer as one")]
    Proxy {
        /// The proxy.
        proxy: SocketAddr,
        /// What went wrong.
        source: io::Error,
    },
    /// The proxy says that it has no connection to the target.
    #[error("the proxy {proxy} cannot connect to {target}: {message}")]
    ProxyRefused {
        /// The proxy.
        proxy: SocketAddr,
        /// Where to.
        target: SocketAddr,
        /// What the proxy says.
        message: String,
    },
}

impl Path {
    /// Opens a TCP connection along this way. The caller sets the deadline; dropping the future closes everything.
    ///
    /// # Errors
    /// See [`PathError`]. By [`Path::Tailnet`] no packet is sent when the route leads elsewhere.
    pub async fn connect(&self, target: SocketAddr) -> Result<TcpStream, PathError> {
        match self {
            Self::Normal => TcpStream::connect(target).await.map_err(connect_error(target)),
            Self::Tailnet(_) => {
                self.verify_route(target)?;
                let stream = TcpStream::connect(target).await.map_err(connect_error(target))?;
                let local = stream.local_addr().map_err(connect_error(target))?;
                // The route may have changed between the look and the connection.
                self.verify_source(target, local.ip())?;
                Ok(stream)
            }
            Self::Socks5(proxy) => by_socks5(*proxy, target).await,
            Self::HttpProxy(proxy) => by_http_proxy(*proxy, target).await,
        }
    }

    /// Whether datagrams can be sent along this way, which no proxy offers.
    #[must_use]
    pub fn carries_udp(&self) -> bool {
        match self {
            Self::Normal | Self::Tailnet(_) => true,
            Self::Socks5(_) | Self::HttpProxy(_) => false,
        }
    }

    /// Makes sure that packets to the target would go by the tailnet interface, where that is this way.
    ///
    /// # Errors
    /// When they would not, or when there is no route.
    pub fn verify_route(&self, target: SocketAddr) -> Result<(), PathError> {
        let Self::Tailnet(_) = self else { return Ok(()) };
        let source_address = source_address(target).map_err(connect_error(target))?;
        self.verify_source(target, source_address)
    }

    fn verify_source(&self, target: SocketAddr, source_address: IpAddr) -> Result<(), PathError> {
        match self {
            Self::Tailnet(own) if !own.contains(&source_address) => {
                Err(PathError::Bypass { target: target.ip(), source_address })
            }
            Self::Tailnet(_) | Self::Normal | Self::Socks5(_) | Self::HttpProxy(_) => Ok(()),
        }
    }
}

fn connect_error(target: SocketAddr) -> impl FnOnce(io::Error) -> PathError {
    move |source| PathError::Connect { target, source }
}

/// The source address that the kernel would give packets to the target. Connecting a datagram socket looks up the
/// route and sends nothing.
fn source_address(target: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

/// RFC 1928 without authentication, and the target by address, so that the proxy looks nothing up.
async fn by_socks5(proxy: SocketAddr, target: SocketAddr) -> Result<TcpStream, PathError> {
    let broken = |source| PathError::Proxy { proxy, source };
    let not_socks = || broken(io::Error::new(io::ErrorKind::InvalidData, "not SOCKS5"));
    let mut stream = TcpStream::connect(proxy).await.map_err(broken)?;
    stream.write_all(&[5, 1, 0]).await.map_err(broken)?;
    let mut greeting = [0; 2];
    stream.read_exact(&mut greeting).await.map_err(broken)?;
    if greeting != [5, 0] {
        return Err(not_socks());
    }
    let mut request = vec![5, 1, 0];
    match target.ip() {
        IpAddr::V4(address) => {
            request.push(1);
            request.extend(address.octets());
        }
        IpAddr::V6(address) => {
            request.push(4);
            request.extend(address.octets());
        }
    }
    request.extend(target.port().to_be_bytes());
    stream.write_all(&request).await.map_err(broken)?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).await.map_err(broken)?;
    if reply[0] != 5 {
        return Err(not_socks());
    }
    if reply[1] != 0 {
        let message = match reply[1] {
            2 => "not allowed".to_owned(),
            3 => "network unreachable".to_owned(),
            4 => "host unreachable".to_owned(),
            5 => "connection refused".to_owned(),
            6 => "time to live expired".to_owned(),
            code => format!("SOCKS5 reply {code}"),
        };
        return Err(PathError::ProxyRefused { proxy, target, message });
    }
    // The bound address, which nobody needs: 4 or 16 bytes or a counted name, and the port.
    let rest = match reply[3] {
        1 => 4 + 2,
        4 => 16 + 2,
        3 => usize::from(stream.read_u8().await.map_err(broken)?) + 2,
        _ => return Err(not_socks()),
    };
    let mut bound = vec![0; rest];
    stream.read_exact(&mut bound).await.map_err(broken)?;
    Ok(stream)
}

/// RFC 9110 `CONNECT`. tailscaled gives its reason in `Tailscale-Connect-Error`.
async fn by_http_proxy(proxy: SocketAddr, target: SocketAddr) -> Result<TcpStream, PathError> {
    let broken = |source| PathError::Proxy { proxy, source };
    let mut stream = TcpStream::connect(proxy).await.map_err(broken)?;
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_CONNECT_HEAD {
            return Err(broken(io::Error::new(io::ErrorKind::InvalidData, "the answer's head is too long")));
        }
        // Byte by byte: what follows the head belongs to the target.
        head.push(stream.read_u8().await.map_err(broken)?);
    }
    let head = String::from_utf8_lossy(&head);
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    let code = status.split(' ').nth(1).unwrap_or_default();
    if code == "200" {
        return Ok(stream);
    }
    if !status.starts_with("HTTP/1.") {
        return Err(broken(io::Error::new(io::ErrorKind::InvalidData, "not HTTP")));
    }
    let said = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("tailscale-connect-error").then(|| value.trim().to_owned())
    });
    Err(PathError::ProxyRefused { proxy, target, message: said.unwrap_or_else(|| format!("HTTP {code}")) })
}

#[cfg(test)]
mod tests;
