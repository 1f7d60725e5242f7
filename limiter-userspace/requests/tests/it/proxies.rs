//! nginx, `HAProxy` and Caddy ask, as docs/behind-a-proxy.md shows it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use limiter_requests::{DEFAULT_DEADLINE, Listen, Options, Server};

const PAGE: &str = include_str!("../../../../docs/behind-a-proxy.md");

/// The block of the page that begins with a text.
fn block_of(begins: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(begins).unwrap_or_else(|| panic!("no {begins}"));
    rest.split("```").next().unwrap()
}

/// The lines of a proxy in the page, with time-outs for a machine that has more to do.
fn block(begins: &str) -> String {
    let block = block_of(begins);
    block.replace("00ms", "000ms").replace("settimeout(1)", "settimeout(5)")
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A proxy of the test.
struct Proxy(Child);

impl Proxy {
    /// Starts a proxy, and waits until it answers at a port.
    fn start(command: &mut Command, port: u16) -> Self {
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("{command:?} cannot be started: {error}: `cargo xtask setup` installs it")
        });
        let proxy = Self(child);
        let deadline = Instant::now() + Duration::from_mins(1);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        proxy
    }

    /// nginx with servers and an application behind it.
    fn nginx(directory: &Path, servers: &str, port: u16, application: u16) -> Self {
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {}/{name};", directory.display()));
        let configuration = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/errors;\nevents {{}}\n\
             http {{ access_log off; {temporary}\n{servers}\n\
             server {{ listen 127.0.0.1:{application}; location / {{ return 200 application; }} }}\n\
             }}\n",
            at = directory.display(),
            temporary = temporary.join(" "),
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, configuration).unwrap();
        let mut command = Command::new("nginx");
        Self::start(command.arg("-e").arg(directory.join("errors")).arg("-c").arg(&file), port)
    }

    /// `HAProxy` with the lines of a configuration, and an application in the place of one.
    fn haproxy(directory: &Path, lines: &str, port: u16) -> Self {
        let configuration = format!(
            "{lines}\nbackend application\n    mode http\n    http-request return status 200 \
             content-type text/plain string application\n"
        );
        let file = directory.join("haproxy.cfg");
        fs::write(&file, configuration).unwrap();
        Self::start(Command::new("haproxy").arg("-db").arg("-f").arg(&file), port)
    }

    /// Caddy with the lines of a site, and an application in it.
    fn caddy(directory: &Path, lines: &str, port: u16) -> Self {
        let configuration = format!(
            "{{\n    admin off\n    auto_https off\n}}\n\
             http://:{port} {{\nbind 127.0.0.1\n{lines}\nrespond application\n}}\n"
        );
        let file = directory.join("Caddyfile");
        fs::write(&file, configuration).unwrap();
        let mut command = Command::new("caddy");
        command.env("HOME", directory).args(["run", "--config"]).arg(&file);
        Self::start(&mut command, port)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The answer to a request of a client that says it is another one.
fn get(port: u16, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nX-Real-IP: 203.0.113.9\r\n{headers}Connection: \
         close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn ask(port: u16) -> String {
    get(port, "/login", "")
}

/// A server with the rules of the page, and its address.
fn limiter(directory: &Path) -> (Server, SocketAddr) {
    let rules = directory.join("auth.yaml");
    fs::write(&rules, block_of("# /etc/limiter/requests.d/auth.yaml\n")).unwrap();
    serving(rules)
}

/// A server with a file or a directory of rules, and its address.
fn serving(rules: PathBuf) -> (Server, SocketAddr) {
    let server = Server::start(&Options {
        rules: vec![rules],
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        max_keys: 1_000,
        max_connections: 100,
        threads: 1,
        response_headers: false,
        daemon: None,
        cluster: None,
        deadline: DEFAULT_DEADLINE,
        max_waiting: 100,
        state: None,
    })
    .unwrap();
    let Listen::Tcp(address) = server.addresses()[0].clone() else { panic!("no address") };
    (server, address)
}

/// Three log-ins pass, and the fourth waits. Each client sees what is left.
fn limits_log_ins(port: u16) {
    for left in [2, 1, 0] {
        let answer = ask(port);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("application"), "{answer}");
        let answer = answer.to_ascii_lowercase();
        assert!(answer.contains(&format!("\r\nratelimit: \"logins\";r={left};t=")), "{answer}");
    }
    let answer = ask(port).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 429 "), "{answer}");
    assert!(answer.contains("\r\nretry-after: 20\r\n"), "{answer}");
    assert!(answer.contains("\r\nratelimit: \"logins\";r=0;t="), "{answer}");
}

/// The status of a log-in without `limiter serve`, and with one that hangs.
fn without_limiter(port: u16, limiter: SocketAddr) -> [String; 2] {
    let status = || ask(port).lines().next().unwrap_or_default().to_owned();
    let away = status();
    // Connections wait in its queue, as those of a process that is stopped do.
    let _hangs = TcpListener::bind(limiter).unwrap();
    [away, status()]
}

/// The configuration of the page limits log-ins; without `limiter serve`, and where that hangs,
/// they pass, or get the status `closed` where the line for that is changed.
fn follows_the_page(start: impl Fn(&Path, SocketAddr, u16, bool) -> Proxy, closed: [&str; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let (server, limiter) = limiter(directory.path());
    let [open, refusing] = [free_port(), free_port()];
    let proxies = [(open, false), (refusing, true)].map(|(port, is_closed)| {
        let directory = directory.path().join(is_closed.to_string());
        fs::create_dir(&directory).unwrap();
        start(&directory, limiter, port, is_closed)
    });
    limits_log_ins(open);
    assert!(ask(refusing).starts_with("HTTP/1.1 429 "));
    server.stop().unwrap();
    assert_eq!(without_limiter(open, limiter), ["HTTP/1.1 200 OK"; 2]);
    let refused = without_limiter(refusing, limiter);
    assert!(refused.iter().zip(closed).all(|(is, to_be)| is.contains(to_be)), "{refused:?}");
    drop(proxies);
}

#[test]
fn nginx_limits_log_ins_by_the_files_of_the_page() {
    let start = |directory: &Path, limiter: SocketAddr, port, is_closed| {
        let application = free_port();
        let open = "    error_page 500 = @open;";
        let locations = block("```nginx\n");
        assert!(locations.contains(open));
        let locations = locations
            .replace(open, if is_closed { "    #" } else { open })
            .replace("http://127.0.0.1:8081", &format!("http://{limiter}"))
            .replace("http://application", &format!("http://127.0.0.1:{application}"));
        let servers = format!("server {{ listen 127.0.0.1:{port};\n{locations}}}");
        Proxy::nginx(directory, &servers, port, application)
    };
    follows_the_page(start, ["500", "500"]);
}

#[test]
fn haproxy_limits_log_ins_by_the_files_of_the_page() {
    let start = |directory: &Path, limiter: SocketAddr, port, is_closed| {
        let script = directory.join("limiter.lua");
        let text = block("```lua\n").replace("8081", &limiter.port().to_string());
        fs::write(&script, text).unwrap();
        let refuse = "# http-request return status 503";
        let lines = block("```haproxy\n");
        assert!(lines.contains(refuse));
        let lines = lines
            .replace(refuse, if is_closed { &refuse[2..] } else { refuse })
            .replace("/etc/haproxy/limiter.lua", &script.display().to_string())
            .replace("bind :80", &format!("mode http\n    bind 127.0.0.1:{port}"));
        Proxy::haproxy(directory, &lines, port)
    };
    follows_the_page(start, ["503", "503"]);
}

/// Other paths are not asked about.
#[test]
fn haproxy_asks_about_log_ins_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (server, limiter) = limiter(directory.path());
    let script = directory.path().join("limiter.lua");
    fs::write(&script, block("```lua\n").replace("8081", &limiter.port().to_string())).unwrap();
    let port = free_port();
    let lines = block("```haproxy\n")
        .replace("/etc/haproxy/limiter.lua", &script.display().to_string())
        .replace("bind :80", &format!("mode http\n    bind 127.0.0.1:{port}"));
    let haproxy = Proxy::haproxy(directory.path(), &lines, port);
    for _ in 0..5 {
        let answer = get(port, "/", "");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    drop(haproxy);
    server.stop().unwrap();
}

#[test]
fn caddy_limits_log_ins_by_the_files_of_the_page() {
    let start = |directory: &Path, limiter: SocketAddr, port, is_closed| {
        let lines = block("In Caddy:\n\n```\n").replace("127.0.0.1:8081", &limiter.to_string());
        let open = block("504:\n\n```\n");
        let ends = "reverse_proxy @away application:80";
        assert!(open.contains(ends));
        let open = open.replace(ends, "respond @away application 200");
        let lines = if is_closed { lines } else { format!("{lines}{open}") };
        Proxy::caddy(directory, &lines, port)
    };
    follows_the_page(start, ["502", "504"]);
}

/// Asks until one is refused; returns how many passed, and the seconds that it took.
fn passed(port: u16, path: &str, headers: impl Fn(u64) -> String) -> (u64, u64) {
    let begun = Instant::now();
    for passed in 0..500 {
        let answer = get(port, path, &headers(passed));
        if answer.starts_with("HTTP/1.1 429 ") {
            assert!(answer.to_ascii_lowercase().contains("\r\nretry-after: "), "{answer}");
            return (passed, begun.elapsed().as_secs() + 1);
        }
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("application"), "{answer}");
    }
    panic!("500 requests for {path} passed in {:?}", begun.elapsed());
}

/// Made-up keys do not pass the limit of their source; the other recipes, and checks that wait.
#[test]
fn nginx_limits_keys_searches_and_crawlers_by_the_recipes() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules");
    fs::create_dir(&rules).unwrap();
    for name in ["api", "search", "crawlers"] {
        let text = block_of(&format!("# /etc/limiter/requests.d/{name}.yaml\n"));
        fs::write(rules.join(format!("{name}.yaml")), text).unwrap();
    }
    let (server, limiter) = serving(rules);
    let (port, application) = (free_port(), free_port());
    let servers = block_of("# /etc/nginx/conf.d/site.conf\n")
        .replace("listen 80;", &format!("listen 127.0.0.1:{port};"))
        .replace("127.0.0.1:8081", &limiter.to_string())
        .replace("http://application", &format!("http://127.0.0.1:{application}"));
    let nginx = Proxy::nginx(directory.path(), &servers, port, application);
    // Keys that were not given out are not those who pay, whatever they say of themselves.
    let mine = |_| "X-Api-Key: mine\r\nX-Tier: paid\r\n".to_owned();
    let (hits, seconds) = passed(port, "/api/x", mine);
    assert!((5..=5 + 5 * seconds).contains(&hits), "{hits} in {seconds} s");
    // Nor does a new key for each request pass the limit of its source, of which some is used.
    let made_up = |number| format!("X-Api-Key: made-up-{number}\r\n");
    let (hits, seconds) = passed(port, "/api/x", made_up);
    assert!((1..=20 + 20 * seconds).contains(&hits), "{hits} in {seconds} s");
    for _ in 0..10 {
        let answer = get(port, "/api/x", "X-Api-Key: key-of-a-customer\r\n");
        assert!(answer.ends_with("application"), "{answer}");
    }
    let (hits, seconds) = passed(port, "/search", |_| String::new());
    assert!((1..=1 + seconds).contains(&hits), "{hits} in {seconds} s");
    // Forty crawlers at once: one goes, two wait, and others if it takes longer.
    let begun = Instant::now();
    let crawlers = (0..40)
        .map(|_| std::thread::spawn(move || get(port, "/page", "User-Agent: a-bot/1.0\r\n")));
    let crawlers: Vec<_> = crawlers.collect();
    let answers = crawlers.into_iter().map(|crawler| crawler.join().unwrap());
    let passed = answers.filter(|answer| answer.ends_with("application")).count();
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    assert!((2..=3 + seconds).contains(&passed), "{passed} in {seconds} s");
    for _ in 0..5 {
        assert!(get(port, "/page", "User-Agent: a browser\r\n").ends_with("application"));
    }
    drop(nginx);
    server.stop().unwrap();
}
