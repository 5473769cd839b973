//! A node of the token ring that shares no code with ours: the wire format of the document, over plain sockets.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};

/// How long one exchange may take.
const PASS_TIMEOUT: Duration = Duration::from_secs(2);

/// Host, address and port, as in the list.
pub(crate) type Entry = (i32, Ipv4Addr, u16);

pub(crate) struct Foreign {
    pub(crate) ip: Ipv4Addr,
    pub(crate) host_id: i32,
    pub(crate) udp: UdpSocket,
    pub(crate) tcp: TcpListener,
    /// The magnitude.
    pub(crate) token: i32,
    pub(crate) list: Vec<Entry>,
    pub(crate) counts: serde_json::Map<String, Value>,
}

/// A token that came, not yet ours.
pub(crate) struct Offered {
    pub(crate) token: i32,
    pub(crate) list: Vec<Entry>,
    /// Whether the list had to be sent.
    pub(crate) listed: bool,
    pub(crate) data: Vec<u8>,
}

impl Foreign {
    pub(crate) fn new(ip: IpAddr, udp_port: u16, host_id: i32) -> Self {
        let IpAddr::V4(ip) = ip else { panic!("tests use IPv4") };
        let udp = UdpSocket::bind((ip, udp_port)).expect("the address is ours");
        udp.set_broadcast(true).expect("it may broadcast");
        let tcp = TcpListener::bind((ip, 0)).expect("there is a free port");
        Self { ip, host_id, udp, tcp, token: 0x7000_0000, list: Vec::new(), counts: serde_json::Map::new() }
    }

    pub(crate) fn port(&self) -> u16 {
        self.tcp.local_addr().expect("it is bound").port()
    }

    /// Asks for the token once, by broadcast.
    pub(crate) fn ask(&self) {
        let mut tr1 = vec![0x01];
        tr1.extend((-self.token).to_be_bytes());
        tr1.extend(self.host_id.to_be_bytes());
        tr1.extend(self.port().to_be_bytes());
        let port = self.udp.local_addr().expect("it is bound").port();
        self.udp.send_to(&tr1, (Ipv4Addr::new(127, 255, 255, 255), port)).expect("it is sent");
    }

    /// Waits for a TP1 and answers; later bytes are not read yet.
    pub(crate) fn accept(&self) -> io::Result<(TcpStream, i32, bool)> {
        let (mut stream, _) = self.tcp.accept()?;
        stream.set_read_timeout(Some(PASS_TIMEOUT))?;
        stream.set_nodelay(true)?;
        let mut tp1 = [0; 9];
        stream.read_exact(&mut tp1)?;
        let token = int(&tp1[1..5]);
        assert!(tp1[0] == 0x21 && token > 0, "an offer is a TP1 with a positive id: {tp1:02x?}");
        let same = int(&tp1[5..]) == hash(&self.list);
        stream.write_all(&[if same { 0x41 } else { 0x31 }])?;
        Ok((stream, token, same))
    }

    /// Takes an offer to its end: the FIN.
    pub(crate) fn receive(&self) -> io::Result<Offered> {
        let (mut stream, token, same) = self.accept()?;
        let list = if same { self.list.clone() } else { read_list(&mut stream)? };
        let mut tp5 = Vec::new();
        stream.read_to_end(&mut tp5)?;
        assert_eq!(tp5.first(), Some(&0x61), "TP5 follows");
        Ok(Offered { token, list, listed: !same, data: tp5[1..].to_vec() })
    }

    /// Makes an offered token ours; false if its data is not whole.
    pub(crate) fn commit(&mut self, offered: Offered) -> bool {
        let Some(payload) = unframe(&offered.data) else { return false };
        let data: Value = serde_json::from_slice(payload).expect("the payload is JSON");
        let theirs = data["counts"].as_object().expect("it has counts").clone();
        for (host, count) in theirs {
            let count = count.as_u64().expect("a count is a number");
            let own = self.counts.get(&host).and_then(Value::as_u64).unwrap_or(0);
            let best = if offered.token == self.token { count } else { count.max(own) };
            self.counts.insert(host, best.into());
        }
        self.adopt(offered.token, offered.list);
        true
    }

    /// Takes over the id and the list of a token, whatever its data.
    pub(crate) fn adopt(&mut self, token: i32, list: Vec<Entry>) {
        (self.token, self.list) = (token, list);
        if !self.list.iter().any(|(host, ..)| *host == self.host_id) {
            self.list.push((self.host_id, self.ip, self.port()));
        }
    }

    /// One tenure: raises our count.
    pub(crate) fn tenure(&mut self) {
        *self.counts.entry(self.host_id.to_string()).or_insert_with(|| 0.into()) =
            (self.own_count() + 1).into();
    }

    pub(crate) fn own_count(&self) -> u64 {
        self.counts.get(&self.host_id.to_string()).and_then(Value::as_u64).unwrap_or(0)
    }

    /// The data of TP5. The shipped application's other fields are dropped, as a foreign node may.
    pub(crate) fn data(&self) -> Vec<u8> {
        frame(json!({ "counts": self.counts }).to_string().as_bytes())
    }

    /// Passes the token to the next that takes it.
    pub(crate) fn pass(&self) -> Option<Entry> {
        self.pass_data(&self.data())
    }

    /// The same, with data of our own.
    pub(crate) fn pass_data(&self, data: &[u8]) -> Option<Entry> {
        let own = self.list.iter().position(|(host, ..)| *host == self.host_id).expect("we are in our list");
        let behind = self.list[own + 1..].iter().chain(&self.list[..own]);
        behind.copied().find(|entry| self.pass_to(*entry, data).is_ok())
    }

    pub(crate) fn pass_to(&self, (_, ip, port): Entry, data: &[u8]) -> io::Result<()> {
        let mut stream = self.offer((ip, port).into())?;
        stream.write_all(&[0x61])?;
        stream.write_all(data)?;
        stream.shutdown(Shutdown::Write)?;
        // The candidate's FIN.
        stream.read_to_end(&mut Vec::new()).map(drop)
    }

    /// TP1, its answer, and TP4 if it is wanted.
    pub(crate) fn offer(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = dial(self.ip, to)?;
        let mut tp1 = vec![0x21];
        tp1.extend(self.token.to_be_bytes());
        tp1.extend(hash(&self.list).to_be_bytes());
        stream.write_all(&tp1)?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        match answer {
            [0x31] => stream.write_all(&tp4(&self.list))?,
            [0x41] => {}
            other => panic!("TP2 or TP3 was expected: {other:02x?}"),
        }
        Ok(stream)
    }
}

/// A connection from the announced address.
pub(crate) fn dial(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let SocketAddr::V4(to) = to else { panic!("tests use IPv4") };
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&fd, &SocketAddrV4::new(from, 0))?;
    connect(&fd, &to)?;
    let stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(PASS_TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub(crate) fn tp4(list: &[Entry]) -> Vec<u8> {
    let mut bytes = vec![0x51];
    bytes.extend(i32::try_from(list.len()).expect("it is short").to_be_bytes());
    bytes.extend(entries(list));
    bytes
}

fn read_list(stream: &mut TcpStream) -> io::Result<Vec<Entry>> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    assert_eq!(head[0], 0x51, "TP4 follows a TP2");
    let mut list = Vec::new();
    for _ in 0..int(&head[1..]) {
        let mut entry = [0; 10];
        stream.read_exact(&mut entry)?;
        let ip = Ipv4Addr::new(entry[4], entry[5], entry[6], entry[7]);
        list.push((int(&entry[..4]), ip, u16::from_be_bytes([entry[8], entry[9]])));
    }
    Ok(list)
}

fn entries(list: &[Entry]) -> Vec<u8> {
    let one =
        |(host, ip, port): &Entry| [&host.to_be_bytes()[..], &ip.octets(), &port.to_be_bytes()].concat();
    list.iter().flat_map(one).collect()
}

/// The polynomial hash with base 577 over signed bytes.
fn hash(list: &[Entry]) -> i32 {
    let step = |hash: i32, byte: u8| hash.wrapping_mul(577).wrapping_add(i32::from(byte.cast_signed()));
    entries(list).into_iter().fold(0, step)
}

fn int(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

pub(crate) fn frame(payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("it is short");
    [&len.to_be_bytes(), payload, &crc(payload).to_be_bytes()].concat()
}

pub(crate) fn unframe(data: &[u8]) -> Option<&[u8]> {
    let (head, rest) = data.split_first_chunk::<4>()?;
    let (payload, tail) = rest.split_at_checked(u32::from_be_bytes(*head) as usize)?;
    (tail == crc(payload).to_be_bytes()).then_some(payload)
}

/// CRC-32 as in zlib, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let byte = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    };
    !bytes.iter().fold(u32::MAX, byte)
}
