//! Names of services, for messages: rules have numbers.

/// Services that people name, with the protocol that is meant mostly.
const SERVICES: [(&str, u16, &str); 42] = [
    ("amqp", 5672, "tcp"),
    ("dns", 53, "udp"),
    ("domain", 53, "udp"),
    ("ftp", 21, "tcp"),
    ("http", 80, "tcp"),
    ("http-alt", 8080, "tcp"),
    ("https", 443, "tcp"),
    ("imap", 143, "tcp"),
    ("imaps", 993, "tcp"),
    ("ldap", 389, "tcp"),
    ("ldaps", 636, "tcp"),
    ("memcached", 11_211, "tcp"),
    ("minecraft", 25_565, "tcp"),
    ("mongodb", 27_017, "tcp"),
    ("mqtt", 1883, "tcp"),
    ("ms-sql", 1433, "tcp"),
    ("mysql", 3306, "tcp"),
    ("nfs", 2049, "tcp"),
    ("ntp", 123, "udp"),
    ("openvpn", 1194, "udp"),
    ("pop3", 110, "tcp"),
    ("pop3s", 995, "tcp"),
    ("postgres", 5432, "tcp"),
    ("postgresql", 5432, "tcp"),
    ("quic", 443, "udp"),
    ("rdp", 3389, "tcp"),
    ("redis", 6379, "tcp"),
    ("rsync", 873, "tcp"),
    ("sip", 5060, "udp"),
    ("smb", 445, "tcp"),
    ("smtp", 25, "tcp"),
    ("smtps", 465, "tcp"),
    ("snmp", 161, "udp"),
    ("ssh", 22, "tcp"),
    ("submission", 587, "tcp"),
    ("sunrpc", 111, "tcp"),
    ("syslog", 514, "udp"),
    ("telnet", 23, "tcp"),
    ("tftp", 69, "udp"),
    ("vnc", 5900, "tcp"),
    ("wireguard", 51_820, "udp"),
    ("www", 80, "tcp"),
];

/// The port of a service and its protocol; `None` for an unknown name.
pub(crate) fn service(name: &str) -> Option<(u16, &'static str)> {
    let known = SERVICES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name.trim()));
    known.map(|(_, port, protocol)| (*port, *protocol))
}
