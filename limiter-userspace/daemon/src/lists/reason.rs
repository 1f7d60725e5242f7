//! The reason that the author of an entry gives for it.

use std::sync::Arc;

use limiter_rules::model::LONGEST_REASON as MOST;
use limiter_text::plain::is_plain;

use crate::error::ServiceError;

/// Checks that a reason can be stored and shown.
pub(super) fn checked(text: &str) -> Result<Arc<str>, ServiceError> {
    let problem = if text.trim().is_empty() {
        "is empty: leave it out, or say something".to_owned()
    } else if text.chars().count() > MOST {
        format!("is longer than {MOST} characters: shorten it")
    } else if let Some(other) = text.chars().find(|c| !is_plain(*c)) {
        format!(
            "has the character {:?}, which steers terminals: leave it out",
            other.escape_debug().to_string()
        )
    } else {
        return Ok(Arc::from(text.trim()));
    };
    Err(ServiceError::Word { word: "reason", problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_short_line_of_plain_text() {
        assert_eq!(&*checked(" fail2ban sshd ").unwrap(), "fail2ban sshd");
        assert!(checked(&"é".repeat(MOST)).is_ok());
        for (text, words) in [
            ("", "is empty"),
            (" ", "is empty"),
            ("a\nb", "has the character"),
            ("a\u{202e}b", "has the character"),
        ] {
            let error = checked(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
        let long = checked(&"é".repeat(MOST + 1)).unwrap_err().to_string();
        assert!(long.contains("longer than 128"), "{long}");
    }
}
