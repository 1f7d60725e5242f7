//! Wrong arguments: words of other tools get the command that is meant, and no tip that never is.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use limiter_api::arguments::some_seconds;
use limiter_rules::RateText;
use limiter_text::stderr::say;

use super::help::EXAMPLES;
use crate::args::Args;

/// Commands that people try, and what to type instead.
const TRIED: [(&str, &str); 27] = [
    ("who", WHO),
    ("dropped", WHO),
    ("drops", WHO),
    ("ls", LIST),
    ("rules", LIST),
    ("undo", UNDO),
    ("reset", UNDO),
    ("clear", UNDO),
    (
        "start",
        "`limiter run --limit 1000/s`, or with --rules FILE, is the daemon; as a service it is \
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
    ("undeny", "use `limiter unlist ADDRESS`"),
    ("limit", "use `limiter set ADDRESS RATE`"),
    (
        "metrics",
        "use `limiter stats`; for Prometheus `curl --unix-socket /run/limiter/limiter.sock \
        http://localhost/metrics`, or `limiter run --metrics-listen 127.0.0.1:9464`",
    ),
    ("attach", "`limiter run --limit 1000/s` attaches, and `limiter detach` frees"),
    ("enable", "use `limiter on`; as a service it is `systemctl enable --now limiter`"),
    ("disable", "use `limiter off`, which lets every packet pass until `limiter on`"),
    ("whitelist", "use `limiter allow ADDRESS`"),
    ("permit", "use `limiter allow ADDRESS`"),
    ("blacklist", "use `limiter deny ADDRESS`"),
    ("flush", UNDO),
    ("config", "`limiter check FILE` reads rules, `limiter export` writes those in force"),
    ("info", "use `limiter status` for the daemon, `limiter show ADDRESS` for a source"),
    ("version", "use `limiter --version`"),
    (
        "page",
        "the daemon serves it: `limiter run --page-listen 127.0.0.1:9465`, or its socket through \
        `ssh -L 9465:/run/limiter/limiter.sock HOST`",
    ),
];

const WHO: &str = "use `limiter top`, or `limiter top --once`: who is dropped, and by what";

const LIST: &str = "use `limiter list` for the rules in force, `limiter lists` for the addresses \
    that are allowed or denied";

const UNDO: &str = "use `limiter unset` for a limit, `limiter unset --all` for those of `set`, \
    `limiter unlist` for a list, `limiter unban` for a ban, `limiter detach` for all limits";

const IFACE: &str = "limits hold on all interfaces that `limiter run --iface` names; for one of \
    them a rule file has the key `interface`";

/// Options that people try, the commands where that is so, or none for all, and what there is
/// instead.
const OPTIONS: [(&str, &[&str], &str); 6] = [
    ("--iface", &[], IFACE),
    ("--interface", &[], IFACE),
    (
        "--all",
        &["unlist", "unban", "detach", "off"],
        "name each: `limiter lists` has the entries of lists, `limiter bans` the bans; `limiter \
        unset --all` removes all limits of `set`, `limiter detach` all limits",
    ),
    ("--json", &[], "write --output json; of `top` --once --output json"),
    (
        "--egress",
        &[],
        "what goes out is `limiter run --direction out`, or `both`, and `direction: out` in a rule",
    ),
    ("--ingress", &[], "what comes in is limited without an option, and with `--direction in`"),
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
const MISSED: [(&str, &str, &str); 3] = [
    EXPLAIN,
    (
        "run",
        "--rules",
        "no rules are given: write a limit, as in `limiter run --limit 1000/s`, or a file with \
        --rules",
    ),
    (
        "ban",
        "--for",
        "a ban ends: give --for, as in `--for 10m`; `limiter deny ADDRESS` is for ever",
    ),
];

/// A rule file of the package, and of a checkout.
const RULE_FILES: [&str; 2] =
    ["/usr/share/doc/limiter/examples/ssh-box.yaml", "examples/ssh-box.yaml"];

/// Ends with the error of the arguments.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(instead) = instead(error, &words) {
        say(format_args!("limiter: {instead}"));
        return ExitCode::from(2);
    }
    let code = error.exit_code();
    match one_line(error) {
        Some(line) => say(format_args!("limiter: {line}")),
        None => {
            // There is nobody left to notify.
            let _unread: std::io::Result<()> = error.print();
        }
    }
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// An error that has no words of ours, in one line as all others are; none of what is no error,
/// such as help.
fn one_line(error: &clap::Error) -> Option<String> {
    let text = error.to_string();
    let text = text.strip_prefix("error: ")?;
    let of_error = |part: &&str| {
        !part.is_empty() && !part.starts_with("For more") && !part.starts_with("Usage: ")
    };
    let parts: Vec<&str> = text.lines().map(str::trim).filter(of_error).collect();
    Some(format!("{}: see --help", parts.join(" ")))
}

/// Our own words for some mistakes.
fn instead(error: &clap::Error, words: &[String]) -> Option<String> {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    let option = || word(ContextKind::InvalidArg).map(name_of);
    let help = help_of(words);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let tried = word(ContextKind::InvalidSubcommand)?;
            let instead = match TRIED.iter().find(|(known, _)| *known == tried) {
                Some((_, instead)) => (*instead).to_owned(),
                None => nearest(tried, &commands()),
            };
            Some(format!("there is no command {tried:?}: {instead}"))
        }
        ErrorKind::UnknownArgument => {
            let unknown = word(ContextKind::InvalidArg)?;
            let is_meant = |(known, commands, _): &&(&str, &[&str], &str)| {
                *known == unknown
                    && (commands.is_empty()
                        || words.iter().any(|at| commands.contains(&at.as_str())))
            };
            if let Some((_, _, instead)) = OPTIONS.iter().find(is_meant) {
                return Some(format!("there is no option {unknown} here: {instead}"));
            }
            let said = in_quotes(words, unknown).or_else(|| rate_in_words(words, unknown));
            if let Some(said) = said.or_else(|| without_option(words, unknown)) {
                return Some(said);
            }
            Some(match (unknown.starts_with('-'), word(ContextKind::SuggestedArg)) {
                (false, _) => format!("{unknown:?} is one word too many: `{help}` has the order"),
                (true, Some(near)) => {
                    format!("there is no option {unknown} here: did you mean {}?", name_of(near))
                }
                (true, None) => format!("there is no option {unknown} here: `{help}` has all"),
            })
        }
        ErrorKind::InvalidValue => {
            let (option, value) = (option()?, word(ContextKind::InvalidValue).unwrap_or_default());
            let values = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(values)) if !values.is_empty() => {
                    format!("use {}", values.join(", "))
                }
                _ => format!("write one behind it, as `{help}` says"),
            };
            Some(match value {
                "" => format!("{option} needs a value: {values}"),
                value => format!("{option} {value}: there is no such value: {values}"),
            })
        }
        ErrorKind::ValueValidation => {
            let (option, value) = (option()?, word(ContextKind::InvalidValue)?);
            let why = std::error::Error::source(error)?;
            Some(format!("{option} {value}: {why}"))
        }
        ErrorKind::ArgumentConflict => {
            let prior = match error.get(ContextKind::PriorArg)? {
                ContextValue::String(prior) => name_of(prior).to_owned(),
                ContextValue::Strings(prior) => {
                    prior.iter().map(|prior| name_of(prior)).collect::<Vec<_>>().join(", ")
                }
                _ => return None,
            };
            let option = option()?;
            Some(if prior == option {
                format!("{option} stands here twice: keep one")
            } else {
                format!("{option} and {prior} do not go together: leave one out")
            })
        }
        ErrorKind::MissingRequiredArgument => {
            let Some(ContextValue::Strings(missed)) = error.get(ContextKind::InvalidArg) else {
                return None;
            };
            let known = MISSED.iter().find(|(command, argument, _)| {
                words.iter().any(|word| word == command)
                    && missed.len() == 1
                    && missed.iter().all(|missed| missed.starts_with(argument))
            });
            Some(match known {
                Some(("run", _, what)) => format!("{what}{}", rule_file(&RULE_FILES)),
                Some((_, _, what)) => (*what).to_owned(),
                None => {
                    let missed = missed.join(" and ");
                    let example = example(words).unwrap_or_else(|| format!("see `{help}`"));
                    format!("{missed} is missing: {example}")
                }
            })
        }
        _ => None,
    }
}

/// The name of an option, without its value.
fn name_of(option: &str) -> &str {
    option.split([' ', '=']).next().unwrap_or(option)
}

/// The names of all commands.
fn commands() -> Vec<String> {
    Args::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// The line that shows the help which is wanted.
fn help_of(words: &[String]) -> String {
    let commands = commands();
    match words.iter().find(|word| commands.contains(word)) {
        Some(command) => format!("limiter {command} --help"),
        None => "limiter --help".to_owned(),
    }
}

/// The first example of the command.
fn example(words: &[String]) -> Option<String> {
    let (_, examples) =
        EXAMPLES.iter().find(|(command, _)| words.iter().any(|at| at == command))?;
    Some(format!("as in `limiter {}`", examples.first()?))
}

/// The first of these files that is there.
fn rule_file(files: &[&str]) -> String {
    let file = files.iter().find(|file| Path::new(file).exists());
    file.map_or_else(String::new, |file| format!(", as in {file}"))
}

/// A value whose option was left out: `ban 192.0.2.7 10m`, `run eth0`.
fn without_option(words: &[String], unknown: &str) -> Option<String> {
    let is = |command: &str| words.iter().any(|word| word == command);
    let option = if is("ban") && some_seconds(unknown).is_ok() {
        "--for"
    } else if !is("run") || unknown.starts_with('-') {
        return None;
    } else if Path::new(unknown).extension().is_some_and(|end| end == "yaml" || end == "yml") {
        "--rules"
    } else if RateText::parse(unknown).is_ok() {
        "--limit"
    } else {
        "--iface"
    };
    Some(format!("{unknown:?} stands without its option: write {option} {unknown}"))
}

/// The commands that were probably meant.
fn nearest(tried: &str, commands: &[String]) -> String {
    let far = |command: &String| strsim::damerau_levenshtein(tried, command);
    // More than a third of a word wrong is another word, and of three letters one may be.
    let most = (tried.len() / 3).max(1);
    let least = commands.iter().map(far).min().filter(|least| *least <= most);
    let near = commands.iter().filter(|command| Some(far(command)) == least);
    let near: Vec<_> = near.map(|command| format!("`{command}`")).collect();
    if near.is_empty() || near.len() > 3 {
        "`limiter --help` lists them".to_owned()
    } else {
        format!("did you mean {}?", near.join(" or "))
    }
}

/// A limit of `run` that was written without quotes: `--limit udp/27015 128/s`.
fn in_quotes(words: &[String], unknown: &str) -> Option<String> {
    let at = words.iter().rposition(|word| word == unknown)?;
    let limit = words.get(..at)?.iter().rposition(|word| word == "--limit")?;
    let behind = words.get(limit + 1..=at)?;
    let all = behind.iter().all(|word| !word.starts_with('-'));
    all.then(|| {
        format!("--limit takes one word: write quotes, as in --limit '{}'", behind.join(" "))
    })
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
            (
                "limiter set --iface eth0 5/s",
                "here: limits hold on all interfaces that `limiter run",
            ),
            ("limiter unlist --all", "`limiter lists` has the entries of lists"),
            ("limiter list --all", "here: `limiter list --help` has all"),
            ("limiter ls", "use `limiter list` for the rules in force"),
            ("limiter rules", "use `limiter list` for the rules in force"),
            ("limiter ban 192.0.2.7 10m", "write --for 10m"),
            ("limiter ban 192.0.2.7 --for 10", "write one like 10s, 10m or 10h"),
            ("limiter run eth0 --limit 5/s", "write --iface eth0"),
            ("limiter run --iface eth0 5/s", "write --limit 5/s"),
            ("limiter run rules.yaml", "write --rules rules.yaml"),
            ("limiter sources --top 0", "--top 0: "),
            ("limiter show", "<ADDRESS> is missing: as in `limiter show 192.0.2.7`"),
            ("limiter who", "`limiter top --once`"),
            ("limiter undo", "`limiter unset` for a limit"),
        ] {
            let reported = reported(line).unwrap_or_default();
            assert!(reported.contains(part), "{line}: {reported}");
        }
    }

    /// An error is one line, which names the place and the remedy; help is no error.
    #[test]
    fn an_error_of_arguments_is_one_line() {
        for (line, said) in [
            ("tpo", "there is no command \"tpo\": did you mean `top`?"),
            ("chek", "there is no command \"chek\": did you mean `check`?"),
            ("statsu", "there is no command \"statsu\": did you mean `status` or `stats`?"),
            ("frobnicate", "there is no command \"frobnicate\": `limiter --help` lists them"),
            ("deny 192.0.2.7 --fro 1h", "there is no option --fro here: did you mean --force?"),
            ("status --zzz", "there is no option --zzz here: `limiter status --help` has all"),
            ("status now", "\"now\" is one word too many: `limiter status --help` has the order"),
            ("status --output xml", "--output xml: there is no such value: use table, json, yaml"),
            (
                "deny --file",
                "--file needs a value: write one behind it, as `limiter deny --help` says",
            ),
            (
                "ban",
                "--for <TIME> and <ADDRESS> is missing: as in `limiter ban 192.0.2.7 --for 10m`",
            ),
            (
                "capture --dropped --passed",
                "--dropped and --passed do not go together: leave one out",
            ),
            ("status --output json --output json", "--output stands here twice: keep one"),
            (
                "run --limit udp/27015 128/s",
                "--limit takes one word: write quotes, as in --limit 'udp/27015 128/s'",
            ),
            (
                "run --limit 5/s --rules r.yaml",
                "--limit and --rules do not go together: leave one out",
            ),
        ] {
            assert_eq!(reported(&format!("limiter {line}")).as_deref(), Some(said), "{line}");
        }
        assert_eq!(reported("limiter --help"), None);
        let run = reported("limiter run --iface eth0").unwrap();
        assert!(run.contains("`limiter run --limit 1000/s`, or a file with --rules"), "{run}");
        // Only a file that is there is named.
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(rule_file(&["/nowhere.yaml", here]), format!(", as in {here}"));
        assert_eq!(rule_file(&["/nowhere.yaml"]), "");
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
                assert!(said.starts_with(&format!("--for {time}: ")), "{command}: {said}");
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
