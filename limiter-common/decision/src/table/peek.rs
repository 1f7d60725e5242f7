//! Checks one packet in one table, and plans what to do there.

use limiter_common::verdict::Reason;
use limiter_common::wire::RULE_NONE;

use super::buckets::target::{TargetLookup, find_target};
use super::charges::over::over;
use super::limits::check::Check;
use super::limits::weight::weight;
use super::limits::wish::{ask, find_leases, need_leases};
use super::plain_route::plain::check_at_once;
use super::result::{Stale, TableResult, Wish};
use super::scratch::{Plan, Scratch};
use crate::call::call;
use crate::maps::{Keyed as _, Maps};

/// Checks the packet in one table and plans what to do there.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn peek<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: Option<&W::Keyed>,
    index: u32,
) -> TableResult {
    if let Some(bucket) = bucket {
        bucket.touch(scratch.now());
    }
    let mut plan = Plan::Nothing;
    let mut rule = RULE_NONE;
    let mut reason = Reason::Conforming;
    let mut action = 0;
    let mut stale = Stale::KEY;
    let mut result = TableResult::READY;
    match find_target(maps, bucket, scratch, index) {
        TargetLookup::Stale(what) => {
            stale = what;
            result = TableResult::STALE;
        }
        TargetLookup::Free(None) => {}
        TargetLookup::Free(Some(record)) => {
            plan = Plan::Count;
            rule = record.rule;
            reason = if record.is_unlimited() { Reason::Unlimited } else { Reason::Untracked };
        }
        TargetLookup::Full(record) => {
            rule = record.rule;
            if record.is_shadow(scratch.daemon_lost()) {
                plan = Plan::Count;
                reason = Reason::Shadow;
            } else {
                reason = Reason::TableFull;
                if record.is_block() {
                    reason = Reason::Blocked;
                    action = u32::from(record.action);
                }
                result = TableResult::OVER;
            }
        }
        TargetLookup::Target(target) => {
            rule = target.record.rule;
            if let Some(account) = scratch.account(index) {
                account.set_target(&target);
            }
            // Leases of another key do not belong to this one, nor to the overflow bucket.
            scratch.forget_leases();
            if target.record.leased != 0 && target.budget.is_own() {
                call!(find_leases(maps, scratch; index));
            }
            let check = check_at_once(maps, scratch, &target);
            if matches!(scratch.wish.get(), Wish::Free) {
                call!(need_leases(maps, scratch; &target.bucket, target.slot));
            }
            if matches!(scratch.wish.get(), Wish::Asks) {
                call!(ask(maps, scratch; index, target.slot));
            }
            match check {
                Check::WITHIN => {
                    plan = Plan::Charge;
                    reason = target.within();
                }
                Check::SOFT => {
                    plan = Plan::Charge;
                    reason = Reason::Marked;
                    action = u32::from(target.record.soft_action);
                }
                Check::OVER if target.record.is_shadow(scratch.daemon_lost()) => {
                    plan = Plan::Count;
                    reason = Reason::Shadow;
                }
                // A packet in the overflow bucket shares it with strangers: it is not banned,
                // answered or redirected for what they did.
                Check::OVER if target.budget.is_overflow() => {
                    reason = Reason::OverAggregate;
                    result = TableResult::OVER;
                }
                Check::OVER => {
                    action = u32::from(target.record.action);
                    let over = over(maps, scratch, action);
                    plan = over.plan;
                    reason = over.reason;
                    result = over.result;
                    stale = over.stale;
                }
                // The bucket was pointed to another rule meanwhile.
                _ => {
                    stale = target.stale;
                    result = TableResult::STALE;
                }
            }
        }
    }
    if let Some(account) = scratch.account(index) {
        account.plan.set(plan as u32);
        account.weight.set(if plan as u32 == Plan::Nothing as u32 { 0 } else { weight(reason) });
        account.rule.set(rule);
        account.reason.set(reason.index());
        account.action.set(action);
        account.leases.set(scratch.leases.get());
        account.stale.set(stale);
    }
    result
}
