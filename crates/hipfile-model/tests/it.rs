//! Each scenario in twenty thousand orders of steps; in more with `HIPFILE_TEST_ORDERS`.
#![allow(clippy::disallowed_methods, reason = "tests read the environment")]

use hipfile_model::{batches, blocks, lookups, threads};

macro_rules! scenarios {
    ($($module:ident::$name:ident,)*) => { $(
        #[test]
        fn $name() {
            let orders = std::env::var("HIPFILE_TEST_ORDERS").ok().and_then(|n| n.parse().ok());
            $module::$name(orders.unwrap_or(20_000));
        }
    )* };
}

scenarios! {
    batches::every_accepted_entry_gives_one_event,
    batches::all_who_wait_return,
    batches::places_are_given_again,
    batches::destroying_waits_for_what_runs_and_releases_who_waits,
    batches::a_wait_ends_with_the_event_it_waits_for,
    batches::destroying_releases_before_it_waits,
    blocks::all_takers_are_served,
    blocks::a_free_block_waits_for_nobody,
    blocks::trimming_takes_nobody_s_block,
    blocks::a_lost_block_leaves_nobody_waiting,
    lookups::an_id_means_one_thing,
    lookups::registrations_are_seen_as_they_were_at_one_moment,
    lookups::a_path_rests_once_and_is_forgiven,
    lookups::all_that_is_refused_is_remembered,
    lookups::both_ways_are_tried,
    lookups::a_turn_is_one_thread_s,
    threads::every_job_runs,
    threads::all_that_is_watched_comes_about,
    threads::helpers_are_gone_when_the_call_returns,
    threads::nothing_in_use_is_retired,
    threads::everybody_gets_a_turn,
}
