//! Wrong arguments: words of other tools get the command that is meant, and no tip that never is.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use limiter_rules::RateText;
use limiter_text::stderr::say;

/// Commands that people try, and what to type instead.
const TRIED: [(&str, &str); 18] = [
    (
        "start",
        "`limiter run --iface IFACE --rules FILE` is the daemon; as a service it is \
        `systemctl start limiter`",
    ),
    (
        "stop",
        "`limiter off` lets every packet pass, `limiter detach` removes the limits; the daemon \
        ends with `systemctl stop limiter`, and the limits stay",
    ),
    ("restart", "use `systemctl restart limiter`; `limiter reload` reads the rule files again"),
    (
        "delete",
        "use `limiter unset` for a limit, `limiter unlist` for a list, `limiter unban` for a ban",
    ),
    ("drop", "use `limiter deny` for sources, or `action: drop` in a rule file for a port"),
    ("limit", "use `limiter set ADDRESS RATE`"),
    (
        "metrics",
        "use `limiter stats`; for Prometheus `curl --unix-socket /run/limiter/limiter.sock \
        http://localhost/metrics`, or `limiter run --metrics-listen 127.0.0.1:9464`",
    ),
    ("attach", "`limiter run --iface IFACE --rules FILE` attaches, and `limiter detach` frees"),
    ("enable", "use `limiter on`; as a service it is `systemctl enable --now limiter`"),
    ("disable", "use `limiter off`, which lets every packet pass until `limiter on`"),
    ("whitelist", "use `limiter allow ADDRESS`"),
    ("permit", "use `limiter allow ADDRESS`"),
    ("blacklist", "use `limiter deny ADDRESS`"),
    (
        "flush",
        "use `limiter unset` for a limit, `limiter unlist` for a list, `limiter detach` for all",
    ),
    ("config", "`limiter check FILE` reads rules, `limiter export` writes those in force"),
    ("info", "use `limiter status` for the daemon, `limiter show ADDRESS` for a source"),
    ("version", "use `limiter --version`"),
    (
        "page",
        "the daemon serves it: `limiter run --page-listen 127.0.0.1:9465`, or its socket through \
        `ssh -L 9465:/run/limiter/limiter.sock HOST`",
    ),
];

/// Options that people try, and what there is instead.
const OPTIONS: [(&str, &str); 3] = [
    ("--json", "write --output json; of `top` --once --output json"),
    (
        "--egress",
        "what goes out is `limiter run --direction out`, or `both`, and `direction: out` in a rule",
    ),
    ("--ingress", "what comes in is limited without an option, and with `--direction in`"),
];

/// Missing arguments of `explain`.
#[cfg(feature = "replay")]
const EXPLAIN: (&str, &str, &str) = (
    "explain",
    "--pcap",
    "give a packet, as in `limiter explain --from 192.0.2.7 --to 22/tcp`, or a capture with --pcap \
    FILE",
);
#[cfg(not(feature = "replay"))]
const EXPLAIN: (&str, &str, &str) =
    ("explain", "--from", "give a packet, as in `limiter explain --from 192.0.2.7 --to 22/tcp`");

/// Arguments without which a command has nothing to do: the command, the argument as it is missed,
/// and what to give.
const MISSED: [(&str, &str, &str); 2] = [
    EXPLAIN,
    (
        "ban",
        "--for",
        "a ban ends: give --for, as in `--for 10m`; `limiter deny ADDRESS` is for ever",
    ),
];

/// Ends with the error of the arguments.
pub(super) fn refuse(mut error: clap::Error) -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(instead) = instead(&error, &words) {
        say(format_args!("limiter: {instead}"));
        return ExitCode::from(2);
    }
    without_dashes(&mut error);
    let code = error.exit_code();
    match one_line(&error) {
        Some(line) => say(format_args!("limiter: {line}")),
        None => {
            // There is nobody left to notify.
            let _unread: std::io::Result<()> = error.print();
        }
    }
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The error in one line, as all others are; none of what is no error, such as help.
fn one_line(error: &clap::Error) -> Option<String> {
    let text = error.to_string();
    let text = text.strip_prefix("error: ")?;
    let mut line = String::new();
    for part in text.lines().map(str::trim) {
        let part = part.strip_prefix("tip: ").unwrap_or(part);
        let is_hint = part.starts_with("For more information") || part.starts_with("Usage: ");
        if part.is_empty() || is_hint {
            continue;
        }
        let between = match line.chars().next_back() {
            None => "",
            Some(':') => " ",
            Some(_) if part.starts_with('[') => " ",
            Some(_) => "; ",
        };
        line.push_str(between);
        line.push_str(part);
    }
    Some(format!("{line}: see --help"))
}

/// Takes out the tip to pass a word behind `--`: no command of ours takes words that begin with a
/// dash.
fn without_dashes(error: &mut clap::Error) {
    let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) else {
        return;
    };
    let tips: Vec<_> =
        tips.iter().filter(|tip| !tip.to_string().contains("as a value")).cloned().collect();
    error.remove(ContextKind::Suggested);
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// Our own words for some mistakes.
fn instead(error: &clap::Error, words: &[String]) -> Option<String> {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let tried = word(ContextKind::InvalidSubcommand)?;
            let (_, instead) = TRIED.iter().find(|(known, _)| *known == tried)?;
            Some(format!("there is no command {tried:?}: {instead}"))
        }
        ErrorKind::UnknownArgument => {
            let unknown = word(ContextKind::InvalidArg)?;
            if let Some((_, instead)) = OPTIONS.iter().find(|(known, _)| *known == unknown) {
                return Some(format!("there is no option {unknown}: {instead}"));
            }
            rate_in_words(words, unknown)
        }
        ErrorKind::MissingRequiredArgument => {
            let Some(ContextValue::Strings(missed)) = error.get(ContextKind::InvalidArg) else {
                return None;
            };
            let (_, _, what) = MISSED.iter().find(|(command, argument, _)| {
                words.iter().any(|word| word == command)
                    && missed.len() == 1
                    && missed.iter().all(|missed| missed.starts_with(argument))
            })?;
            Some((*what).to_owned())
        }
        _ => None,
    }
}

/// A rate of `limiter set` that was written in several words: `100 pps`, `5 per minute`.
fn rate_in_words(words: &[String], unknown: &str) -> Option<String> {
    // Of a word that begins with a dash, clap names the first letter.
    if let Some(letter) = unknown.strip_prefix('-')
        && letter.starts_with(|first: char| first.is_ascii_digit())
    {
        let at = words.iter().position(|word| word.starts_with(unknown))?;
        let word = words.get(at)?;
        // Behind an option, its value is meant.
        if let Some(option) = at.checked_sub(1).and_then(|before| words.get(before))
            && option.starts_with("--")
        {
            return Some(format!("{option} {word}: a negative value means nothing here"));
        }
        return if words.iter().any(|word| word == "set") {
            RateText::parse(word).err().map(|error| error.to_string())
        } else {
            Some(format!("{word:?} is no address: write one like 192.0.2.7 or 2001:db8::1"))
        };
    }
    // An unknown option is no part of a rate.
    if unknown.starts_with('-') {
        return None;
    }
    let at = words.iter().rposition(|word| word == unknown)?;
    let is_number = |word: &String| word.starts_with(|first: char| first.is_ascii_digit());
    let first = words.get(..at)?.iter().rposition(is_number)?;
    let end = words.get(at..)?.iter().position(|word| word.starts_with('-'));
    let end = end.map_or(words.len(), |end| at + end);
    words.iter().find(|word| matches!(word.as_str(), "set" | "add"))?;
    let rate = words.get(first..end)?.join(" ");
    Some(match RateText::parse(&rate) {
        Ok(_) => format!("a rate of several words wants quotes: \"{rate}\""),
        Err(error) => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Args;

    /// Our words for a command line, if it is refused with such.
    fn reported(line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Args::try_parse_from(&words).err()?;
        instead(&error, &words)
    }

    #[test]
    fn a_rate_stands_anywhere_behind_its_address() {
        for line in [
            "limiter set 192.0.2.0/24 --port 22/tcp --count syns 10/min --for 1h --name ssh",
            "limiter set --port 22/tcp --shared 10/min --for 1h",
            "limiter set 192.0.2.7 --for 1h 10/min",
            "limiter set 192.0.2.7 10/min --burst -1",
        ] {
            assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        let negative = "\"-5/s\" is negative: give a rate of at least 1 per week";
        assert_eq!(reported("limiter set 192.0.2.7 -5/s").as_deref(), Some(negative));
        let meant = "\"100 pps\" is not a rate: did you mean 100/s?";
        assert_eq!(reported("limiter set 192.0.2.7 100 pps").as_deref(), Some(meant));
    }

    #[test]
    fn what_is_missed_or_meant_is_named() {
        for (line, part) in [
            ("limiter explain", "limiter explain --from 192.0.2.7 --to 22/tcp"),
            ("limiter ban 192.0.2.7", "--for 10m"),
            ("limiter run --iface eth0 --egress", "`limiter run --direction out`"),
            ("limiter whitelist 192.0.2.7", "`limiter allow ADDRESS`"),
            ("limiter version", "`limiter --version`"),
            ("limiter page", "`limiter run --page-listen 127.0.0.1:9465`"),
        ] {
            let reported = reported(line).unwrap_or_default();
            assert!(reported.contains(part), "{line}: {reported}");
        }
        assert_eq!(reported("limiter ban"), None);
        assert_eq!(reported("limiter deny --file"), None);
    }

    /// An error is one line, whatever is wrong; help is not.
    #[test]
    fn an_error_of_options_is_one_line() {
        let of = |line: &str| one_line(&Args::try_parse_from(line.split(' ')).unwrap_err());
        for (line, words) in [
            ("limiter deny 192.0.2.7 --fro 1h", "unexpected argument '--fro' found"),
            ("limiter deny 192.0.2.7 --for x", "invalid value 'x' for '--for <TIME>': that is no"),
            ("limiter ban", "the following required arguments were not provided: "),
            ("limiter status --output xml", "invalid value 'xml' for '--output <"),
        ] {
            let said = of(line).unwrap();
            assert!(said.starts_with(words), "{line}: {said}");
            assert!(!said.contains('\n') && said.ends_with(": see --help"), "{line}: {said}");
        }
        assert_eq!(of("limiter --help"), None);
        let top = reported("limiter top --json").unwrap();
        assert!(top.contains("--once --output json"), "{top}");
    }

    #[test]
    fn a_rate_in_several_words_is_distinguished_from_other_mistakes() {
        let reported = |line: &str, unknown: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            rate_in_words(&words, unknown)
        };
        let meant = "\"100 pps\" is not a rate: did you mean 100/s?";
        assert_eq!(reported("limiter set 192.0.2.1 100 pps", "pps").as_deref(), Some(meant));
        let meant = "\"5 per minute\" is not a rate: did you mean 5/min?";
        assert_eq!(
            reported("limiter set 192.0.2.1 5 per minute --burst 2", "per").as_deref(),
            Some(meant)
        );
        let quotes = "a rate of several words wants quotes: \"10 syns/min\"";
        assert_eq!(
            reported("limiter set 192.0.2.1 10 syns/min", "syns/min").as_deref(),
            Some(quotes)
        );
        let negative = "\"-5/s\" is negative: give a rate of at least 1 per week";
        assert_eq!(reported("limiter set 192.0.2.1 -5/s", "-5").as_deref(), Some(negative));
        assert_eq!(reported("limiter deny 192.0.2.1 --port", "--port"), None);
        for line in ["limiter set 192.0.2.1 5/s --to 22", "limiter set 192.0.2.1 5/s --to"] {
            assert_eq!(reported(line, "--to"), None, "{line}");
        }
        let negative = "--for -1s: a negative value means nothing here";
        assert_eq!(reported("limiter deny 192.0.2.1 --for -1s", "-1").as_deref(), Some(negative));
    }

    /// Values of other tools, where a negative time is for ever and 0 is never.
    #[test]
    fn times_that_mean_nothing_are_refused_without_a_daemon() {
        let refused = |line: &str| {
            let error = Args::try_parse_from(line.split(' ')).unwrap_err();
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            instead(&error, &words).unwrap_or_else(|| error.to_string())
        };
        for command in ["deny 192.0.2.7", "allow 192.0.2.7", "ban 192.0.2.7", "set 192.0.2.7 5/s"] {
            for time in ["0", "0s", "0ms"] {
                let said = refused(&format!("limiter {command} --for {time}"));
                assert!(said.contains("0 seconds are over at once"), "{command} {time}: {said}");
            }
            for time in ["forever", "never", "10min."] {
                let said = refused(&format!("limiter {command} --for {time}"));
                assert!(said.contains("write one like 90s, 10m, 2h or 1d"), "{command}: {said}");
            }
            for time in ["-1", "-1s", "-600s"] {
                let said = refused(&format!("limiter {command} --for {time}"));
                assert!(said.contains("a negative value means nothing"), "{command}: {said}");
            }
            for time in ["600", "forever", "1x"] {
                let said = refused(&format!("limiter {command} --for {time}"));
                assert!(said.contains("--for <TIME>"), "{command} {time}: {said}");
            }
        }
        for command in ["deny 192.0.2.7 --for", "apply x.yaml --confirm", "capture --for"] {
            let said = refused(&format!("limiter {command} 10M"));
            assert!(said.contains("`M` would be months"), "{command}: {said}");
        }
        for command in ["show", "unset", "unban", "deny", "unlist"] {
            let said = refused(&format!("limiter {command} -1"));
            assert!(said.contains("\"-1\" is no address"), "{command}: {said}");
        }
        let said = refused("limiter capture --count 0 -w x.pcap");
        assert!(said.contains("give a whole number of at least 1"), "{said}");
        let said = refused("limiter run --iface eth0 --rules r --metrics-listen :9464");
        assert!(said.contains("as in 127.0.0.1:9464"), "{said}");
        for line in ["apply x.yaml --confirm -5m", "tune --pcap x --top -1", "capture --count -1"] {
            let said = refused(&format!("limiter {line}"));
            assert!(!said.contains("rate of at least"), "{line}: {said}");
        }
    }
}
