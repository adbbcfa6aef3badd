#include "frontend/api/stored_responses.h"

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "frontend/api/response_store.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

StoredResponse Ended(std::string body) { return {.body = std::move(body), .conversation = "[]"}; }

// What a follower was given.
struct Seen {
  std::string events;
  int num_ends = 0;

  StoredResponses::Follower Follower() {
    return [this](std::string_view text, bool is_end) {
      events += text;
      num_ends += is_end ? 1 : 0;
      return true;
    };
  }
};

TEST_CASE("a stored response is found until it is removed") {
  StoredResponses table({});
  table.Put("a", Ended("A"));
  REQUIRE(table.Find("a").ok());
  CHECK((*table.Find("a"))->body == "A");
  table.Put("a", Ended("B"));
  CHECK((*table.Find("a"))->body == "B");
  CHECK(table.num_entries() == 1);
  CHECK(table.Remove("a").ok());
  CHECK(table.num_bytes() == 0);
  for (const Status& status : {table.Remove("a"), table.Find("a").status()}) {
    CHECK(status.code() == StatusCode::kNotFound);
    CHECK(status.param() == "response_id");
    CHECK(status.message().find("Response with id 'a' not found.") == 0);
  }
}

TEST_CASE("the response unused for the longest time makes room") {
  StoredResponses table({.num_entries = 2});
  table.Put("a", Ended("A"));
  table.Put("b", Ended("B"));
  CHECK(table.Find("a").ok());
  table.Put("c", Ended("C"));
  CHECK(table.Find("a").ok());
  CHECK_FALSE(table.Find("b").ok());
  CHECK(table.Find("c").ok());
}

TEST_CASE("bytes are bounded, and one response too large evicts no other") {
  StoredResponses table({.num_bytes = 8192});
  table.Put("small", Ended("x"));
  table.Put("large", Ended(std::string(9000, 'x')));
  CHECK(table.Find("small").ok());
  CHECK_FALSE(table.Find("large").ok());
  for (int i = 0; i < 20; ++i) {
    table.Put(std::to_string(i), Ended(std::string(3000, 'x')));
    CHECK(table.num_bytes() <= 8192);
  }
  CHECK(table.Find("19").ok());
  CHECK_FALSE(table.Find("small").ok());
}

TEST_CASE("a response that runs is not evicted, and a table full of them refuses more") {
  StoredResponses table({.num_entries = 2});
  REQUIRE(table.Begin("a", Ended("A"), false, nullptr).ok());
  CHECK(table.Begin("a", Ended("A"), false, nullptr).code() == StatusCode::kAlreadyExists);
  table.Put("b", Ended("B"));
  REQUIRE(table.Begin("c", Ended("C"), false, nullptr).ok());
  CHECK_FALSE(table.Find("b").ok());
  CHECK(table.Begin("d", Ended("D"), false, nullptr).code() == StatusCode::kResourceExhausted);
  table.Put("e", Ended("E"));
  CHECK_FALSE(table.Find("e").ok());
  CHECK((*table.Find("a"))->running);
  table.Update("a", "A2");
  CHECK((*table.Find("a"))->body == "A2");
  CHECK((*table.Find("a"))->running);
  table.End("a", "A3");
  CHECK_FALSE((*table.Find("a"))->running);
  CHECK((*table.Find("a"))->conversation == "[]");
  CHECK(table.Begin("d", Ended("D"), false, nullptr).ok());
  CHECK_FALSE(table.Find("a").ok());
}

TEST_CASE("followers get each event once, from the number they name") {
  StoredResponses table({});
  REQUIRE(table.Begin("a", Ended("A"), true, nullptr).ok());
  Seen first, later, late, past;
  REQUIRE(table.Follow("a", -1, first.Follower()).ok());
  table.Append("a", "event 0\n\nevent 1\n\n");
  REQUIRE(table.Follow("a", 0, later.Follower()).ok());
  REQUIRE(table.Follow("a", 7, past.Follower()).ok());
  table.Append("a", "event 2\n\n");
  table.End("a", "A");
  REQUIRE(table.Follow("a", 1, late.Follower()).ok());
  CHECK(first.events == "event 0\n\nevent 1\n\nevent 2\n\n");
  CHECK(later.events == "event 1\n\nevent 2\n\n");
  CHECK(late.events == "event 2\n\n");
  for (const Seen* seen : {&first, &later, &late, &past}) CHECK(seen->num_ends == 1);
  table.Put("b", Ended("B"));
  CHECK(table.Follow("b", -1, first.Follower()).param() == "stream");
  CHECK(table.Follow("none", -1, first.Follower()).code() == StatusCode::kNotFound);
}

TEST_CASE("a follower that wants no more is asked no more") {
  StoredResponses table({});
  REQUIRE(table.Begin("a", Ended("A"), true, nullptr).ok());
  int num_calls = 0;
  REQUIRE(table.Follow("a", -1, [&](std::string_view, bool) { return ++num_calls < 2; }).ok());
  for (int i = 0; i < 5; ++i) table.Append("a", "event\n\n");
  table.End("a", "A");
  CHECK(num_calls == 2);
}

TEST_CASE("cancelling stops a running response and replies with what it ended as") {
  StoredResponses table({});
  std::vector<Status> stops;
  REQUIRE(
      table.Begin("a", Ended("A"), false, [&](const Status& why) { stops.push_back(why); }).ok());
  std::vector<StatusOr<StoredResponsePtr>> replies;
  const auto reply = [&](StatusOr<StoredResponsePtr> ended) {
    replies.push_back(std::move(ended));
  };
  table.Cancel("a", reply);
  table.Cancel("a", reply);
  CHECK(stops == std::vector<Status>{OkStatus()});
  CHECK(replies.empty());
  table.End("a", "cancelled");
  REQUIRE(replies.size() == 2);
  CHECK((*replies[1])->body == "cancelled");
  table.Cancel("a", reply);
  CHECK(replies[2].status().message() == "Cannot cancel a synchronous response.");
  CHECK(replies[2].status().code() == StatusCode::kFailedPrecondition);
  table.Cancel("none", reply);
  CHECK(replies[3].status().code() == StatusCode::kNotFound);
}

TEST_CASE("removing a running response stops it and wakes those who wait for it") {
  StoredResponses table({});
  int num_stops = 0;
  REQUIRE(table.Begin("a", Ended("A"), true, [&](const Status&) { ++num_stops; }).ok());
  Seen seen;
  REQUIRE(table.Follow("a", -1, seen.Follower()).ok());
  Status cancelled;
  table.Cancel("a", [&](const StatusOr<StoredResponsePtr>& ended) { cancelled = ended.status(); });
  CHECK(table.Remove("a").ok());
  CHECK(num_stops == 1);
  CHECK(seen.num_ends == 1);
  CHECK(cancelled.code() == StatusCode::kNotFound);
  table.Append("a", "event\n\n");
  table.End("a", "A");
  CHECK(table.num_entries() == 0);
}

TEST_CASE("a running response whose events outgrow the table is stopped with an error") {
  StoredResponses table({.num_bytes = 8192});
  table.Put("old", Ended("x"));
  Status why;
  REQUIRE(table.Begin("a", Ended("A"), true, [&](const Status& status) { why = status; }).ok());
  table.Append("a", std::string(5000, 'x') + "\n\n");
  CHECK(why.ok());
  table.Append("a", std::string(5000, 'x') + "\n\n");
  CHECK(why.code() == StatusCode::kResourceExhausted);
  CHECK_FALSE(table.Find("old").ok());
  table.End("a", "failed");
  CHECK(table.num_bytes() <= 8192);
}

// ---- Across shards ----

Awaitable<void> PutThenFind(ResponseStore* store, std::string id,
                            std::promise<std::string>* found) {
  store->Put(id, Ended(id + "'s"));
  auto response = co_await store->Find(id);
  found->set_value(response.ok() ? (*response)->body : response.status().message());
}

Awaitable<void> FindBody(ResponseStore* store, std::string id, std::promise<std::string>* found) {
  auto response = co_await store->Find(id);
  found->set_value(response.ok() ? (*response)->body : response.status().message());
}

Awaitable<void> FollowToEnd(ResponseStore* store, std::string id, std::promise<void>* follows,
                            std::promise<std::string>* all) {
  const auto events = std::make_shared<StoredEvents>();
  const Status followed = co_await store->Follow(id, -1, events);
  CHECK(followed.ok());
  follows->set_value();
  while (!events->is_end) {
    co_await events->arrived.Wait();
    events->arrived.Reset();
  }
  all->set_value(events->text);
}

Awaitable<void> BeginOne(ResponseStore* store, std::string id, std::promise<Status>* begun) {
  StoredResponse response = Ended("queued");
  begun->set_value(co_await store->Begin(id, std::move(response), true, nullptr));
}

// A store that three shards share. They end before it does: its owner still reports its sizes after
// the last answer went out.
struct SharedStore {
  SharedStore() {
    for (auto& shard : all) shard.Start();
  }
  ~SharedStore() {
    for (auto& shard : all) shard.Stop();
    for (auto& shard : all) shard.Join();
  }
  // Runs the coroutine on the shard and waits for what it sets.
  template <class T>
  T Get(int shard, Awaitable<void> coroutine, std::promise<T>& result) {
    auto future = result.get_future();
    Shard* const runner = &all[shard];
    runner->Post([runner, coroutine = std::move(coroutine)]() mutable {
      runner->Spawn(std::move(coroutine), "test");
    });
    REQUIRE(future.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    return future.get();
  }

  Shard all[3] = {Shard(0), Shard(1), Shard(2)};
  Metrics metrics{{.model_name = "m"}};
  ResponseStore store{{}, &all[0], &metrics.frontend()};
};

TEST_CASE("what one shard stores is found from every shard, at once") {
  SharedStore shared;
  for (int shard : {0, 1, 2}) {
    for (int i = 0; i < 50; ++i) {
      std::promise<std::string> here, there;
      const std::string id = std::to_string(shard) + "-" + std::to_string(i);
      CHECK(shared.Get(shard, PutThenFind(&shared.store, id, &here), here) == id + "'s");
      CHECK(shared.Get((shard + 1) % 3, FindBody(&shared.store, id, &there), there) == id + "'s");
    }
  }
  CHECK(shared.metrics.frontend().stored_responses.Value() == 150);
  CHECK(shared.metrics.frontend().stored_response_bytes.Value() > 150 * 512);
}

TEST_CASE("events written on one shard arrive in order on another") {
  SharedStore shared;
  std::promise<Status> begun;
  REQUIRE(shared.Get(1, BeginOne(&shared.store, "a", &begun), begun).ok());
  std::promise<void> follows;
  std::promise<std::string> all;
  auto events = all.get_future();
  shared.Get(2, FollowToEnd(&shared.store, "a", &follows, &all), follows);
  std::string expected;
  for (int i = 0; i < 1000; ++i) expected += "event " + std::to_string(i) + "\n\n";
  shared.all[1].Post([store = &shared.store] {
    for (int i = 0; i < 1000; ++i) store->Append("a", "event " + std::to_string(i) + "\n\n");
    store->End("a", "completed");
  });
  REQUIRE(events.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  CHECK(events.get() == expected);
}

}  // namespace
}  // namespace tandem
