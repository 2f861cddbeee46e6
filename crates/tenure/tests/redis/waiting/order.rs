//! Rules 1, 5 and 8: whoever touches a name settles it, and the order outlives the queue that it is kept in.

use tenure::{Attempt, Guard, Release};
use tokio::task::JoinHandle;

use super::scene::{BEATS, FENCE, KEY, NAME, Peer, QUEUE, Scene, granted};

/// Three that wait, in this order.
async fn three(scene: &Scene) -> ([Peer; 3], [JoinHandle<Guard>; 3]) {
    let peers = [scene.peer().await, scene.peer().await, scene.peer().await];
    let tasks = [
        scene.enqueue(&peers[0], "1").await,
        scene.enqueue(&peers[1], "2").await,
        scene.enqueue(&peers[2], "3").await,
    ];
    (peers, tasks)
}

/// They are served in their order, with fences that grow.
async fn are_served(tasks: impl IntoIterator<Item = JoinHandle<Guard>>, mut fence: u64) {
    let mut waiting: Vec<_> = tasks.into_iter().collect();
    while !waiting.is_empty() {
        let guard = granted(waiting.remove(0)).await;
        assert!(waiting.iter().all(|task| !task.is_finished()), "served before its turn");
        assert!(guard.fence().get() > fence, "fences went back");
        fence = guard.fence().get();
        guard.release().await.expect("to release");
    }
}

/// Until everyone is back in the queue, which was lost; the first one last.
async fn come_back(scene: &Scene, peers: &[Peer; 3], lose: impl FnOnce()) {
    peers[0].proxy.black_hole();
    lose();
    scene.is_queued(&["2", "3"]).await;
    peers[0].proxy.heal();
    scene.is_queued(&["1", "2", "3"]).await;
}

// R1.1: a beat brings a waiter back to its old place.
#[tokio::test]
async fn the_order_survives_the_loss_of_the_queue() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = a.hold("a").await;
    let (peers, tasks) = three(&scene).await;
    // The beats without the queue, the queue without the beats, both.
    for lost in [&["DEL", QUEUE][..], &["DEL", BEATS], &["DEL", QUEUE, BEATS]] {
        come_back(&scene, &peers, || drop(scene.command(lost))).await;
    }
    let fence = guard.fence().get();
    guard.release().await.expect("to release");
    are_served(tasks, fence).await;
}

// R1.1, I3: everything is flushed, and somebody else takes the name before one of the waiters can.
#[tokio::test]
async fn the_order_and_the_fences_survive_a_flush() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = a.hold("a").await;
    let (peers, tasks) = three(&scene).await;
    let flush = || {
        let mut raw = scene.server.client().expect("a connection");
        for words in [&["MULTI"][..], &["FLUSHALL"], &["SET", KEY, "somebody", "PX", "60000"], &["EXEC"]] {
            raw.command(words).expect("an answer");
        }
        assert!(scene.command(&["GET", FENCE]).is_nil());
    };
    come_back(&scene, &peers, flush).await;
    scene.command(&["DEL", KEY]);
    are_served(tasks, guard.fence().get()).await;
}

// B6: a lock of another library is outside the queue. It excludes, and its end is noticed by the beats.
#[tokio::test]
async fn the_end_of_a_foreign_lock_is_noticed() {
    let scene = Scene::new().await;
    for expiry in [&["PX", "60000"][..], &[]] {
        scene.command(&[&["SET", KEY, "somebody", "NX"], expiry].concat());
        let (_peers, tasks) = three(&scene).await;
        assert!(scene.holder().await.expect("a holder").owner.is_foreign());
        assert!(tasks.iter().all(|task| !task.is_finished()));
        scene.command(&["DEL", KEY]);
        are_served(tasks, 0).await;
    }
}

// Rule 1: an attempt that comes last finds the name free, and gives it to the first who waits.
#[tokio::test]
async fn nobody_takes_a_free_name_past_the_queue() {
    let scene = Scene::new().await;
    let (a, d) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let (_peers, tasks) = three(&scene).await;
    scene.command(&["DEL", KEY]);
    match d.lock("d").try_acquire().await.expect("an answer") {
        Attempt::Busy(busy) => assert_eq!(busy.holder.expect("to be known").owner.label(), "1"),
        Attempt::Acquired(_) => panic!("past the queue"),
    }
    are_served(tasks, guard.fence().get()).await;
}

// Rule 1, R2.4: so does the release of a lease that is gone.
#[tokio::test]
async fn a_release_in_vain_settles_the_name() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = a.hold("a").await;
    let (_peers, tasks) = three(&scene).await;
    let fence = guard.fence().get();
    scene.command(&["DEL", KEY]);
    match guard.release().await.expect("an answer") {
        Release::Taken { by } => assert_eq!(by.label(), "1"),
        other => panic!("{other:?}, and three wait"),
    }
    are_served(tasks, fence).await;
}

// Rule 1: and so does breaking a lock, and the next does not wait for a beat.
#[tokio::test]
async fn breaking_a_lock_hands_it_over() {
    let scene = Scene::new().await;
    let (a, d) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let (_peers, tasks) = three(&scene).await;
    let holder = scene.holder().await.expect("a holder");
    assert_eq!(d.domain.break_lock(NAME, &holder).await.expect("an answer"), Release::Released);
    assert_eq!(scene.held_by().await, "1");
    are_served(tasks, guard.fence().get()).await;
}
