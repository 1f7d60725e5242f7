//! A service that answers with the request.

use axum::routing::{get, post, put};

use super::*;

/// Answers with the request.
#[derive(Default)]
pub(super) struct Echo {
    pub(super) changes: usize,
    /// Number of answers that were begun, if somebody counts.
    pub(super) begun: Option<Arc<AtomicUsize>>,
}

enum Reported {
    /// An answer of one part.
    Text(Option<Vec<u8>>),
    /// An endless answer, in parts larger than the kernel buffers for a reader.
    Endless,
    /// An answer with a slice before it, and a wait.
    Late(By, u64),
}

impl Sliced<Echo> for Reported {
    fn step(&mut self, _echo: &Echo) -> Result<Step, Refusal> {
        let (by, left) = match self {
            Self::Text(text) => {
                return Ok(text.take().map_or(Step::Done, |text| Step::Part(text.into())));
            }
            Self::Endless => return Ok(Step::Part(vec![b' '; 1 << 20].into())),
            Self::Late(by, left) => (by, left),
        };
        *left = left.saturating_sub(1);
        Ok(match left {
            2 if *by == By::Dropped => Step::Done,
            2 => Step::Again,
            1 => Step::After(Duration::from_millis(1)),
            _ => {
                let list = SourceList { by: *by, ..SourceList::default() };
                *by = By::Dropped;
                *left = 3;
                Step::Part(serde_json::to_vec(&list).unwrap().into())
            }
        })
    }
}

impl Echo {
    fn changed(&mut self) -> Changed {
        self.changes += 1;
        Changed { generation: 5, rules: 1, warnings: Vec::new(), done: None, used: None }
    }

    fn begin(&self, reported: Reported) -> Reported {
        if let Some(begun) = &self.begun {
            begun.fetch_add(1, Ordering::SeqCst);
        }
        reported
    }

    fn document(&self, document: &impl serde::Serialize) -> Reported {
        self.begin(Reported::Text(Some(serde_json::to_vec(document).unwrap())))
    }

    fn limits(&self) -> Reported {
        let warnings = vec![self.changes.to_string()];
        let (limits, budgets) = (Vec::new(), Vec::new());
        let unknown = Vec::new();
        self.document(&Limits { generation: 1, limits, budgets, warnings, unknown })
    }

    fn unset(&mut self, limit: &UnsetLimit) -> Changed {
        assert!(limit.source.as_deref().is_none_or(|source| source == "2001:db8::/64"));
        self.changed()
    }

    fn set(&mut self, limit: &SetLimit) -> Changed {
        assert_eq!(limit.rate, "5/s");
        self.changed()
    }

    fn check(asked: &CheckSource) -> Checked {
        Checked {
            source: asked.address.clone(),
            passes: asked.length == Some(1),
            limit: Some(9),
            remaining: Some(3),
            reset_in_seconds: Some(2),
            retry_after_seconds: (asked.length != Some(1)).then_some(1),
            ..Checked::default()
        }
    }

    fn follow(drops: bool) -> Lines {
        let (sender, lines) = tokio::sync::mpsc::channel(8);
        let count = if drops { 3 } else { 1 };
        std::thread::spawn(move || {
            for number in 0..count {
                // Longer than a connection may take otherwise.
                std::thread::sleep(Duration::from_millis(400));
                sender.blocking_send(format!("{number}\n").into()).unwrap();
            }
        });
        lines
    }
}

fn rules() -> Routes<Echo> {
    Routes::default()
        .at(
            "/v1/reload",
            post(|call: Call<Echo>, Asked(asked): Asked<ReloadRules>| async move {
                let not_now = || Refusal::Conflict("not now".into());
                call.change(|echo| {
                    asked.force.then(|| echo.changed()).ok_or_else(not_now)
                })
            }),
        )
        .at_rules(
            "/v1/rules",
            get(|call: Call<Echo>, Asked(what): Asked<ExportRules>| async move {
                let text = what.edits.to_string();
                let exported = Exported { generation: 1, without_requests_of: Vec::new(), text };
                call.sliced(JSON, |echo| Ok(echo.document(&exported))).await
            })
            .put(
                |call: Call<Echo>,
                       JsonBody(rules): JsonBody<ApplyRules, MAX_RULES_BODY>| async move {
                    assert!(rules.force);
                    call.change(|echo| Ok(echo.changed()))
                },
            ),
        )
        .at_rules(
            "/v1/rules/diff",
            post(
                |call: Call<Echo>,
                       JsonBody(rules): JsonBody<CompareRules, MAX_RULES_BODY>| async move {
                    let unchanged = rules.documents[0].text.len();
                    let diff = RulesDiff { unchanged, ..RulesDiff::default() };
                    call.change(|_| Ok(diff))
                },
            ),
        )
        .at(
            "/v1/rules/confirm",
            post(|call: Call<Echo>| async move {
                call.change(|echo| Ok(echo.changed()))
            }),
        )
        .at(
            "/v1/rules/revert",
            post(|call: Call<Echo>| async move {
                let nothing = Refusal::Conflict("nothing on trial".into());
                call.change(|_| Err::<Changed, _>(nothing))
            }),
        )
}

fn lists() -> Routes<Echo> {
    Routes::default()
        .at(
            "/v1/lists",
            get(|call: Call<Echo>| async move {
                call.sliced(JSON, |echo| Ok(echo.begin(Reported::Endless))).await
            })
            .put(|call: Call<Echo>, JsonBody(asked): JsonBody<SetList>| async move {
                call.change(|echo| {
                    echo.changes += 1;
                    Ok(ListsChanged { allowed: asked.sources.len(), ..ListsChanged::default() })
                })
            })
            .delete(|call: Call<Echo>, Asked(_): Asked<UnsetList>| async move {
                call.change(|echo| {
                    echo.changes += 1;
                    Ok(ListsChanged::default())
                })
            }),
        )
        .at(
            "/v1/bans",
            get(|call: Call<Echo>| async move {
                call.sliced(JSON, |echo| Ok(echo.document(&Bans::default()))).await
            })
            .delete(|call: Call<Echo>, Asked(_): Asked<Unban>| async move {
                call.change(|echo| {
                    echo.changes += 1;
                    Ok(Unbanned { forgotten: 1 })
                })
            }),
        )
}

fn metrics() -> Routes<Echo> {
    Routes::default().at(
        "/metrics",
        get(|call: Call<Echo>| async move {
            let text = || Reported::Text(Some(b"a 1\n".to_vec()));
            call.sliced(limiter_text::exposition::CONTENT_TYPE, |echo| Ok(echo.begin(text()))).await
        }),
    )
}

/// The routes that `limiter top` and the page request repeatedly.
fn looks() -> Routes<Echo> {
    Routes::default()
        .at(
            "/v1/top",
            get(|call: Call<Echo>, Asked(_): Asked<AskTop>| async move {
                call.read(|_| Ok(Top::default())).await
            }),
        )
        .at(
            "/v1/history",
            get(|call: Call<Echo>, Asked(_): Asked<AskHistory>| async move {
                call.read(|_| Ok(History::default())).await
            }),
        )
}

/// The routes of the service, as far as these tests go.
pub(super) fn routes() -> Routes<Echo> {
    Routes::default()
        .at(
            "/v1/status",
            get(|call: Call<Echo>| async move {
                let broken = Refusal::Failed("status is broken".into());
                call.read(|_| Err::<Status, _>(broken)).await
            }),
        )
        .at(
            "/v1/limits",
            get(
                |call: Call<Echo>| async move { call.sliced(JSON, |echo| Ok(echo.limits())).await },
            )
            .put(|call: Call<Echo>, JsonBody(limit): JsonBody<SetLimit>| async move {
                call.change(|echo| Ok(echo.set(&limit)))
            })
            .delete(|call: Call<Echo>, Asked(limit): Asked<UnsetLimit>| async move {
                call.change(|echo| Ok(echo.unset(&limit)))
            }),
        )
        .at(
            "/v1/stats",
            get(|call: Call<Echo>| async move {
                call.sliced(JSON, |_| -> Result<Reported, Refusal> {
                    panic!("a service that panics")
                })
                .await
            }),
        )
        .at(
            "/v1/sources",
            get(|call: Call<Echo>, Asked(asked): Asked<AskSources>| async move {
                call.sliced(JSON, |echo| Ok(echo.begin(Reported::Late(asked.by, 3)))).await
            }),
        )
        .at(
            "/v1/sources/{*address}",
            get(|call: Call<Echo>, Named(address): Named| async move {
                let no = Refusal::NotFound(format!("no {address}"));
                call.read(|_| Err::<SourceView, _>(no)).await
            }),
        )
        .at(
            "/v1/utilization",
            get(|call: Call<Echo>| async move {
                call.sliced(JSON, |echo| Ok(echo.document(&Utilization::default()))).await
            }),
        )
        .at(
            "/v1/check",
            get(|call: Call<Echo>, Asked(asked): Asked<CheckSource>| async move {
                call.respond(|_| Ok(crate::routes::check::response(Echo::check(&asked)))).await
            }),
        )
        .at(
            "/v1/explain",
            get(|call: Call<Echo>, Asked(asked): Asked<AskExplain>| async move {
                let reported = ExplainedNow { packet: asked.from, ..ExplainedNow::default() };
                call.read(|_| Ok(reported)).await
            }),
        )
        .at(
            "/v1/events",
            get(|call: Call<Echo>, Asked(asked): Asked<AskEvents>| async move {
                if asked.follow {
                    return call.follow(|_| Ok(Echo::follow(asked.drops))).await;
                }
                call.read(|_| Ok(Events::default())).await
            }),
        )
        .at(
            "/v1/bypass",
            put(|call: Call<Echo>, JsonBody(bypass): JsonBody<Bypass>| async move {
                call.change(|echo| {
                    echo.changes += 1;
                    Ok(bypass)
                })
            }),
        )
        .at(
            "/v1/detach",
            post(|call: Call<Echo>| async move {
                call.change(|_| {
                    let interfaces = vec!["eth0".into()];
                    Ok(Detached { interfaces, ..Detached::default() })
                })
            }),
        )
        .and(looks())
        .and(lists())
        .and(rules())
        .and(metrics())
}
