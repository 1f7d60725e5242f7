//! Decisions of CrowdSec: `cscli decisions list -o json` and `-o raw`.

use limiter_rules::Selector;
use limiter_rules::feed::Feed;

use super::Elements;

pub(crate) fn read(text: &str) -> Vec<Elements> {
    let feed = Feed::parse(text);
    let mut elements = Elements::named("decisions");
    for entry in feed.entries {
        if let Selector::Prefix(net) = entry.source {
            elements.add(net, entry.seconds);
        }
    }
    for bad in feed.bad.iter().chain(&feed.passed_over) {
        elements.refuse(format!("decision {}", bad.line), "", bad.problem.clone());
    }
    vec![elements]
}

#[cfg(test)]
mod tests {
    use crate::{Options, import};

    /// Quotes inside a text do not make it Python.
    #[test]
    fn decisions_are_read_as_json_and_as_csv() {
        let json = r#"[{"capacity":0,"decisions":[
            {"duration":"3h59m50.5s","scenario":"manual 'ban' from 'x'","scope":"Ip",
             "simulated":false,"type":"ban","value":"203.0.113.5"},
            {"duration":"1h","scope":"Ip","type":"captcha","value":"203.0.113.77"}],"id":1}]"#;
        let csv = "id,source,ip,reason,action,country,as,events_count,expiration,simulated,alert_id\n\
                   1,crowdsec,Ip:203.0.113.5,x,ban,GB,x,12,3h59m50.5s,false,10\n";
        for text in [json, csv] {
            let imported = import(text.as_bytes(), &Options::default()).unwrap();
            assert!(imported.text.contains("\n203.0.113.5 14391s\n"), "{}", imported.text);
            assert!(!imported.text.contains("\n203.0.113.77"), "{}", imported.text);
        }
    }
}
