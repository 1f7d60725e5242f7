//! The distribution of this machine: os-release(5).

use std::fs;

/// The fields of os-release that decide what can be installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OsRelease {
    id: String,
    like: Vec<String>,
    pub(super) name: String,
}

impl OsRelease {
    /// The one of this machine; empty where there is none.
    pub(super) fn read() -> Self {
        ["/etc/os-release", "/usr/lib/os-release"]
            .iter()
            .find_map(|path| fs::read_to_string(path).ok())
            .map_or_else(Self::default, |text| Self::parse(&text))
    }

    /// From the text of os-release; what is not known is left empty.
    pub(super) fn parse(text: &str) -> Self {
        let mut release = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
            let value = value.trim_matches(['"', '\'']);
            match key {
                "ID" => value.clone_into(&mut release.id),
                "ID_LIKE" => release.like = value.split_whitespace().map(str::to_owned).collect(),
                "PRETTY_NAME" => value.clone_into(&mut release.name),
                _ => {}
            }
        }
        release
    }

    /// True for Debian and what is made from it. Only apt knows if the archive has our packages.
    pub(super) fn is_debian(&self) -> bool {
        self.id == "debian" || self.like.iter().any(|id| id == "debian")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_and_its_children_are_known() {
        let debian =
            OsRelease::parse("PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n");
        assert!(debian.is_debian());
        assert_eq!(debian.name, "Debian GNU/Linux 12 (bookworm)");
        assert!(OsRelease::parse("ID=linuxmint\nID_LIKE='ubuntu debian'").is_debian());
        assert!(OsRelease::parse("ID=ubuntu\r\nID_LIKE=debian\r\n").is_debian());
    }

    #[test]
    fn others_are_not() {
        assert!(!OsRelease::parse("ID=\"fedora\"\n# ID=debian\nVARIANT_ID=debian").is_debian());
        assert!(!OsRelease::parse("").is_debian());
    }
}
