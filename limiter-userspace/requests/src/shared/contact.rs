//! Reports of the thread that asks the store.

use limiter_cluster::{Notice, Notices};

use crate::doors::grpc::Grpc;
use crate::service::Service;

/// Does what the node reports, until it ends.
pub(crate) async fn follow(service: &Service, grpc: &Grpc, mut notices: Notices) {
    while let Some(notice) = notices.recv().await {
        let was = service.node.cut_off().is_some();
        handle(service, notice);
        let is = service.node.cut_off().is_some();
        if was != is {
            grpc.report_contact(!is).await;
        }
    }
}

fn handle(service: &Service, notice: Notice) {
    match notice {
        Notice::Nodes(nodes) => {
            tracing::info!(nodes, "limits are shared by another number of nodes");
            service.set_nodes(nodes);
        }
        Notice::Lost { error } => {
            tracing::warn!(
                %error,
                "no contact to the other nodes: rules with scope: cluster do what on_partition says"
            );
            set_cut_off(service, Some(error));
        }
        Notice::Regained { after } => {
            let after = humantime::format_duration(std::time::Duration::from_secs(after.as_secs()));
            tracing::info!("contact to the other nodes again, after {after}");
            set_cut_off(service, None);
        }
        Notice::ServerLost { address, slots, error } => tracing::warn!(
            %error, slots,
            "no contact to {address}, one of the servers of the store: limits whose accounts it \
             has do what on_partition says"
        ),
        Notice::ServerRegained { address } => {
            tracing::info!("{address} answers again, or others have its slots now");
        }
        Notice::Keeping(server) => {
            let kept = service.kept();
            for words in server.wrong(kept).into_iter().chain(server.not_looked_at(kept)) {
                tracing::warn!("{words}");
            }
        }
        Notice::Beyond { limit, units } => tracing::warn!(
            units,
            "the store granted more of {limit} than the limit allows this node alone: that was not \
             taken"
        ),
        Notice::Foreign { error } => tracing::error!("a shared limit is not shared: {error}"),
        Notice::SameName { name } => {
            tracing::error!("another node is called {name}, too: give each a name of its own");
        }
        Notice::RuleSetsDiffer { nodes } if nodes.is_empty() => {
            tracing::info!("all nodes have the same rules again");
        }
        Notice::RuleSetsDiffer { nodes } => {
            tracing::warn!("other rules are in force on {}", nodes.join(", "));
        }
        // Nodes for requests exchange neither lists nor bans.
        Notice::Change(_) | Notice::Refused { .. } | Notice::Missed { .. } => {}
    }
}

fn set_cut_off(service: &Service, error: Option<String>) {
    if let Some(shares) = &service.limiter.cluster {
        shares.leases.set_cut_off(error.is_some());
    }
    service.node.set_cut_off(error);
}
