// The directory on a shard of its own, with engines that are functions of the test.

#include "frontend/adapters/adapter_directory.h"

#include <future>
#include <optional>
#include <utility>

#include "proto_msgpack/codec.h"
#include "tests/support/wire_json.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;
using Reply = std::optional<StatusOr<wire::RawValue>>;  // nullopt: later

Reply Ok() { return StatusOr<wire::RawValue>(wire::PackedBool(true)); }
Reply Fails(std::string why) { return StatusOr<wire::RawValue>(InternalError(std::move(why))); }

class Bench {
 public:
  explicit Bench(int num_engines = 1) : slots(static_cast<size_t>(num_engines), 4) {
    statuses.resize(slots.size());
    directory_.emplace(std::vector<std::string>{"base"}, &owner_, &clock_, Calls(num_engines));
    asker_.Start();
  }
  ~Bench() {
    for (Shard* shard : {&asker_, &owner_}) {
      shard->Stop();
      shard->Join();
    }
  }

  // Before Start.
  AdapterDirectory& directory() { return *directory_; }
  void Start() { owner_.Start(); }

  // On the owner's shard, where all that follows is read and written too.
  void Run(const std::function<void()>& function) {
    std::promise<void> done;
    owner_.Post([&] {
      function();
      done.set_value();
    });
    Wait(done.get_future());
  }
  std::future<Status> BeginLoad(std::string name, std::string path, bool in_place = false) {
    return Ask([this, name, path, in_place] { return directory_->Load({name, path}, in_place); });
  }
  Status Load(std::string name, std::string path, bool in_place = false) {
    return Wait(BeginLoad(std::move(name), std::move(path), in_place));
  }
  std::future<Status> BeginResolve(std::string name, std::string path) {
    return Ask([this, name, path] { return directory_->Resolve({name, path}); });
  }
  Status Resolve(std::string name, std::string path) {
    return Wait(BeginResolve(std::move(name), std::move(path)));
  }
  Status Unload(const std::string& name) {
    return Wait(Ask([this, name] { return directory_->Unload(name); }));
  }
  std::vector<std::string> TakeCalls() {
    std::vector<std::string> taken;
    Run([&] { taken = std::exchange(calls, {}); });
    return taken;
  }
  // The same, once there are some.
  std::vector<std::string> NextCalls() {
    std::vector<std::string> taken;
    const double deadline = clock_.Monotonic() + 20;
    while (taken.empty() && clock_.Monotonic() < deadline) taken = TakeCalls();
    return taken;
  }
  std::vector<std::string> PublishedNames() {
    std::vector<std::string> names;
    Run([&] {
      for (const ServedAdapter& each : published->list()) names.push_back(each.lora.name);
    });
    return names;
  }
  template <class T>
  static T Wait(std::future<T> future) {
    REQUIRE(future.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    return future.get();
  }

  std::function<Reply(int engine, std::string_view method)> answer = [](auto&&...) { return Ok(); };
  std::vector<int> slots;          // of each engine
  std::vector<Status> statuses;    // likewise
  std::vector<std::string> calls;  // "0 add_lora [[\"a\",1,\"/a\",…]]"
  std::vector<UtilityCalls::Callback> unanswered;
  std::vector<std::string> read_folders;  // that the shards know of
  ServedAdaptersPtr published = std::make_shared<const ServedAdapters>();
  std::vector<Status> begun;
  bool hands_over = false;
  bool are_ours = false;  // the engines

 private:
  static Awaitable<void> Await(std::function<Awaitable<Status>()> ask,
                               std::shared_ptr<std::promise<Status>> done) {
    const Status status = co_await ask();
    done->set_value(status);
  }
  std::future<Status> Ask(std::function<Awaitable<Status>()> ask) {
    const auto done = std::make_shared<std::promise<Status>>();
    asker_.Post([this, ask = std::move(ask), done] { asker_.Spawn(Await(ask, done), "ask"); });
    return done->get_future();
  }
  AdapterDirectory::Calls Calls(int num_engines) {
    AdapterDirectory::Calls made;
    made.num_engines = num_engines;
    made.check_engine = [this](int engine) { return statuses[static_cast<size_t>(engine)]; };
    made.num_slots = [this](int engine) { return slots[static_cast<size_t>(engine)]; };
    made.is_ours = [this](int) { return are_ours; };
    made.call_engine = [this](int engine, std::string_view method, const wire::RawValue& args,
                              UtilityCalls::Callback callback) {
      calls.push_back(std::to_string(engine) + " " + std::string(method) + " " +
                      wire::ToJson(args.packed).dump());
      Reply reply = answer(engine, method);
      if (!reply) return unanswered.push_back(std::move(callback));
      callback(std::move(*reply));
    };
    made.publish = [this](ServedAdaptersPtr adapters, const wire::LoraRequest* loaded,
                          const std::function<void()>& done) {
      calls.emplace_back("publish");
      if (loaded != nullptr) read_folders.push_back(loaded->path);
      published = std::move(adapters);
      owner_.Post(done);
    };
    made.on_begun = [this](const Status& status) { begun.push_back(status); };
    made.is_handing_over = [this] { return hands_over; };
    return made;
  }

  SystemClock clock_;  // the shard's own
  Shard owner_{0};
  Shard asker_{1};
  std::optional<AdapterDirectory> directory_;
};

std::string Add(int engine, const std::string& name, int id, const std::string& path,
                bool in_place = false) {
  return std::to_string(engine) + " add_lora " +
         json::array({json::array({name, id, path, nullptr, in_place, false})}).dump();
}

using Texts = std::vector<std::string>;

TEST_CASE("adapter directory: a load reaches every engine, then every shard, then the caller") {
  Bench bench(2);
  bench.Start();
  CHECK(bench.Load("a", "/a").ok());
  CHECK(bench.TakeCalls() == Texts{Add(0, "a", 1, "/a"), Add(1, "a", 1, "/a"), "publish"});
  CHECK(bench.PublishedNames() == Texts{"a"});
  CHECK(bench.Load("a", "/a2", /*in_place=*/true).ok());
  CHECK(bench.TakeCalls() ==
        Texts{Add(0, "a", 1, "/a2", true), Add(1, "a", 1, "/a2", true), "publish"});
}

TEST_CASE("adapter directory: an unload reaches every shard before the engines") {
  Bench bench;
  bench.Start();
  REQUIRE(bench.Load("a", "/a").ok());
  (void)bench.TakeCalls();
  CHECK(bench.Unload("a").ok());
  CHECK(bench.TakeCalls() == Texts{"publish", "0 remove_lora [1]"});
  CHECK(bench.PublishedNames().empty());
  CHECK(bench.Unload("a").code() == StatusCode::kNotFound);
  CHECK(bench.TakeCalls().empty());
}

TEST_CASE("adapter directory: what an engine refuses is the caller's fault and is not served") {
  Bench bench(2);
  bench.answer = [](int engine, std::string_view method) {
    return engine == 1 && method == "add_lora" ? Fails("use_dora is not supported") : Ok();
  };
  bench.Start();
  const Status refused = bench.Load("a", "/a");
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(refused.message() == "Call to add_lora method failed: use_dora is not supported");
  // The engine that took it drops it.
  CHECK(bench.TakeCalls() ==
        Texts{Add(0, "a", 1, "/a"), Add(1, "a", 1, "/a"), "0 remove_lora [1]"});
  CHECK(bench.PublishedNames().empty());
  for (const char* why :
       {"Loading lora a failed: No adapter found for /a",
        "Call to add_lora method failed: Loading lora a failed: No adapter found for /a"}) {
    bench.Run([&] { bench.answer = [why](auto&&...) { return Fails(why); }; });
    const Status absent = bench.Load("a", "/a");
    CHECK(absent.code() == StatusCode::kNotFound);
    CHECK(absent.message() == "Loading lora a failed: No adapter found for /a");
  }
}

TEST_CASE("adapter directory: a load in place that fails leaves the adapter as it was") {
  Bench bench;
  bench.Start();
  REQUIRE(bench.Load("a", "/a").ok());
  bench.Run([&] { bench.answer = [](auto&&...) { return Fails("bad"); }; });
  (void)bench.TakeCalls();
  CHECK_FALSE(bench.Load("a", "/bad", /*in_place=*/true).ok());
  CHECK(bench.TakeCalls() == Texts{Add(0, "a", 1, "/bad", true)});
  bench.Run([&] { CHECK(bench.published->Find("a")->lora.path == "/a"); });
}

std::string Stage(int engine, const std::string& path) {
  return std::to_string(engine) + " tandem_stage_lora " +
         json::array({json::array({"a", 1, path, nullptr, false, false})}).dump();
}

std::string Settle(int engine, const std::string& path, bool takes_place) {
  return std::to_string(engine) + " tandem_settle_lora " +
         json::array({json::array({"a", 1, path, nullptr, false, false}), takes_place}).dump();
}

TEST_CASE("adapter directory: a load in place changes all engines of ours or none") {
  Bench bench(2);
  bench.are_ours = true;
  bench.Start();
  REQUIRE(bench.Load("a", "/a").ok());
  CHECK(bench.Load("a", "/a", /*in_place=*/true).ok());
  CHECK(bench.TakeCalls() == Texts{Add(0, "a", 1, "/a", true), Add(1, "a", 1, "/a", true),
                                   "publish", Stage(0, "/a"), Stage(1, "/a"), Settle(0, "/a", true),
                                   Settle(1, "/a", true), "publish"});
  CHECK(bench.read_folders == Texts{"/a", "/a"});
  bench.Run([&] {
    bench.answer = [](int engine, std::string_view method) {
      return engine == 1 && method == "tandem_stage_lora" ? Fails("too large") : Ok();
    };
  });
  const Status refused = bench.Load("a", "/b", /*in_place=*/true);
  CHECK(refused.message() == "Call to add_lora method failed: too large");
  CHECK(bench.TakeCalls() ==
        Texts{Stage(0, "/b"), Stage(1, "/b"), Settle(0, "/b", false), Settle(1, "/b", false)});
  bench.Run([&] { CHECK(bench.published->Find("a")->lora.path == "/a"); });
  // One that is not there does not count.
  bench.Run([&] { bench.statuses[1] = UnavailableError("gone"); });
  CHECK(bench.Load("a", "/b", /*in_place=*/true).ok());
  CHECK(bench.TakeCalls() == Texts{Stage(0, "/b"), Settle(0, "/b", true), "publish"});
}

TEST_CASE("adapter directory: a name of which other programs' engines have two weights is gone") {
  Bench bench(2);
  bench.Start();
  REQUIRE(bench.Load("a", "/a").ok());
  bench.Run([&] {
    bench.answer = [](int engine, std::string_view method) {
      return engine == 1 && method == "add_lora" ? Fails("too large") : Ok();
    };
  });
  (void)bench.TakeCalls();
  const Status refused = bench.Load("a", "/a", /*in_place=*/true);
  CHECK_THAT(refused.message(), Catch::Contains("too large") && Catch::Contains("served no more"));
  CHECK(bench.TakeCalls() == Texts{Add(0, "a", 1, "/a", true), Add(1, "a", 1, "/a", true),
                                   "publish", "0 remove_lora [1]", "1 remove_lora [1]"});
  CHECK(bench.PublishedNames().empty());
}

TEST_CASE("adapter directory: engines without adapters refuse with the flag that turns them on") {
  Bench bench;
  bench.slots = {0};
  bench.Start();
  const Status status = bench.Load("a", "/a");
  CHECK(status.code() == StatusCode::kFailedPrecondition);
  CHECK(status.message().find("--enable-lora") != std::string::npos);
  CHECK(bench.TakeCalls().empty());
}

TEST_CASE("adapter directory: an engine of ours reads what a process before had it load") {
  Bench bench;
  bench.are_ours = true;
  REQUIRE(bench.directory().Begin({{"a", "/a"}}, "").ok());
  bench.Start();
  bench.Run([&] { bench.directory().OnEngineReady(0); });
  CHECK(bench.TakeCalls() == Texts{Add(0, "a", 1, "/a", true)});
  CHECK(bench.Load("b", "/b").ok());
  CHECK(bench.TakeCalls() == Texts{Add(0, "b", 2, "/b", true), "publish"});
  // One that is back has nothing, and one that was never away need not read again.
  bench.Run([&] { bench.directory().OnEngineReady(0); });
  CHECK(bench.TakeCalls() == Texts{Add(0, "a", 1, "/a"), Add(0, "b", 2, "/b")});
}

TEST_CASE("adapter directory: operations run one after another") {
  Bench bench;
  bench.answer = [](int, std::string_view) { return Reply(); };
  bench.Start();
  std::future<Status> a = bench.BeginLoad("a", "/a");
  std::future<Status> again = bench.BeginLoad("a", "/a");
  CHECK(bench.NextCalls() == Texts{Add(0, "a", 1, "/a")});
  bench.Run([&] { CHECK(bench.unanswered.size() == 1); });
  bench.Run([&] { bench.unanswered.front()(wire::PackedBool(true)); });
  CHECK(Bench::Wait(std::move(a)).ok());
  CHECK(Bench::Wait(std::move(again)).message().find("already been loaded") != std::string::npos);
}

TEST_CASE("adapter directory: an adapter that requests name is loaded once") {
  Bench bench;
  bench.answer = [](int, std::string_view) { return Reply(); };
  bench.Start();
  std::future<Status> first = bench.BeginResolve("a", "/c/a");
  std::future<Status> second = bench.BeginResolve("a", "/c/a");
  CHECK(bench.NextCalls() == Texts{Add(0, "a", 1, "/c/a")});
  std::future<Status> by_a_call = bench.BeginLoad("b", "/b");
  std::future<Status> other = bench.BeginResolve("b", "/c/b");
  bench.Run([&] { bench.unanswered.at(0)(wire::PackedBool(true)); });
  CHECK(Bench::Wait(std::move(first)).ok());
  CHECK(Bench::Wait(std::move(second)).ok());
  // Whichever of the two comes first, the name is served after it.
  CHECK(bench.NextCalls().at(0) == "publish");
  bench.Run([&] { bench.answer = [](auto&&...) { return Ok(); }; });
  const double deadline = SystemClock().Monotonic() + 20;
  bool is_answered = false;
  while (!is_answered && SystemClock().Monotonic() < deadline) {
    bench.Run([&] {
      is_answered = bench.unanswered.size() > 1;
      if (is_answered) bench.unanswered.at(1)(wire::PackedBool(true));
    });
  }
  CHECK(Bench::Wait(std::move(other)).ok());
  CHECK(Bench::Wait(std::move(by_a_call)).ok());
  CHECK(bench.PublishedNames() == Texts{"a", "b"});
  (void)bench.TakeCalls();
  CHECK(bench.Resolve("a", "/c/a").ok());
  CHECK(bench.TakeCalls().empty());
  // It comes back after an unload, as a new one.
  CHECK(bench.Unload("a").ok());
  CHECK(bench.Resolve("a", "/c/a").ok());
  CHECK(bench.TakeCalls() ==
        Texts{"publish", "0 remove_lora [1]", Add(0, "a", 3, "/c/a"), "publish"});
}

TEST_CASE("adapter directory: a bad adapter that requests name is read once for many of them") {
  Bench bench;
  bench.answer = [](auto&&...) { return Fails("use_dora is not supported"); };
  bench.Start();
  const Status refused = bench.Resolve("a", "/c/a");
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(bench.TakeCalls() == Texts{Add(0, "a", 1, "/c/a")});
  CHECK(bench.Resolve("a", "/c/a") == refused);
  CHECK(bench.TakeCalls().empty());
  // A call reads it in any case.
  bench.Run([&] { bench.answer = [](auto&&...) { return Ok(); }; });
  CHECK(bench.Load("a", "/c/a").ok());
  CHECK(bench.Resolve("a", "/c/a").ok());
  // An engine that is not there is no reason to remember.
  bench.Run([&] { bench.statuses[0] = UnavailableError("gone"); });
  CHECK(bench.Resolve("b", "/c/b").code() == StatusCode::kUnavailable);
  bench.Run([&] { bench.statuses[0] = OkStatus(); });
  CHECK(bench.Resolve("b", "/c/b").ok());
}

TEST_CASE("adapter directory: few adapters that requests name are loaded at a time") {
  Bench bench;
  bench.answer = [](int, std::string_view) { return Reply(); };
  bench.Start();
  std::vector<std::future<Status>> waiting;
  for (int i = 0; i < 64; ++i) {
    waiting.push_back(bench.BeginResolve("a" + std::to_string(i), "/c/a"));
  }
  CHECK(bench.Resolve("one-more", "/c/one-more").code() == StatusCode::kUnavailable);
  bench.Run([&] {
    bench.answer = [](auto&&...) { return Ok(); };
    bench.unanswered.at(0)(wire::PackedBool(true));
  });
  for (std::future<Status>& each : waiting) CHECK(Bench::Wait(std::move(each)).ok());
  CHECK(bench.Resolve("one-more", "/c/one-more").ok());
}

TEST_CASE("adapter directory: an engine that is gone gets adapters when it is back") {
  Bench bench(2);
  bench.statuses[1] = UnavailableError("engine 1 is gone");
  bench.slots = {4, 2};
  bench.Start();
  for (const char* name : {"a", "b", "c"}) CHECK(bench.Load(name, std::string("/") + name).ok());
  (void)bench.TakeCalls();
  bench.Run([&] {
    bench.statuses[1] = OkStatus();
    bench.directory().OnEngineReady(1);
  });
  // As many as it has room for, the newest.
  CHECK(bench.TakeCalls() == Texts{Add(1, "b", 2, "/b"), Add(1, "c", 3, "/c")});
  // None is there: no load.
  bench.Run([&] { bench.statuses = {UnavailableError("0"), UnavailableError("1")}; });
  CHECK(bench.Load("d", "/d").code() == StatusCode::kUnavailable);
}

TEST_CASE("adapter directory: an engine that comes during a load gets its adapter too") {
  Bench bench(2);
  bench.statuses[1] = UnavailableError("engine 1 is gone");
  bench.answer = [](int engine, std::string_view) { return engine == 0 ? Reply() : Ok(); };
  bench.Start();
  std::future<Status> loaded = bench.BeginLoad("a", "/a");
  CHECK(bench.NextCalls() == Texts{Add(0, "a", 1, "/a")});
  bench.Run([&] {
    bench.statuses[1] = OkStatus();
    bench.directory().OnEngineReady(1);  // knows of nothing yet
    bench.unanswered.front()(wire::PackedBool(true));
  });
  CHECK(Bench::Wait(std::move(loaded)).ok());
  CHECK(bench.TakeCalls() == Texts{Add(1, "a", 1, "/a"), "publish"});
}

TEST_CASE("adapter directory: at the start all engines are sent all adapters") {
  Bench bench(2);
  bench.slots = {1, 1};
  REQUIRE(bench.directory().Begin({{"a", "/a"}, {"b", "/b"}}, "").ok());
  CHECK_FALSE(bench.directory().has_begun());
  bench.Start();
  CHECK(bench.Load("c", "/c").code() == StatusCode::kUnavailable);
  bench.Run([&] { bench.directory().OnEngineReady(1); });
  CHECK(bench.TakeCalls() == Texts{Add(1, "a", 1, "/a"), Add(1, "b", 2, "/b")});
  bench.Run([&] {
    CHECK(bench.begun.empty());
    CHECK_FALSE(bench.directory().Share().ok());
    bench.directory().OnEngineReady(0);
    CHECK(bench.begun == std::vector<Status>{OkStatus()});
    CHECK(bench.directory().Share().ok());
  });
  CHECK(bench.Load("c", "/c").ok());
}

TEST_CASE("adapter directory: an engine that dies at the start is sent all of them again") {
  Bench bench;
  bench.answer = [](int, std::string_view) { return Reply(); };
  REQUIRE(bench.directory().Begin({{"a", "/a"}, {"b", "/b"}}, "").ok());
  bench.Start();
  bench.Run([&] {
    bench.directory().OnEngineReady(0);
    bench.unanswered[0](wire::PackedBool(true));
    bench.unanswered[1](UnavailableError("it died"));
    bench.directory().OnEngineReady(0);
    bench.unanswered[2](wire::PackedBool(true));
    CHECK(bench.begun.empty());
    bench.unanswered[3](wire::PackedBool(true));
    CHECK(bench.begun == std::vector<Status>{OkStatus()});
  });
}

TEST_CASE("adapter directory: a bad adapter at the start is reported once, by its name") {
  Bench bench;
  bench.answer = [](auto&&...) { return Fails("No adapter found for /a"); };
  REQUIRE(bench.directory().Begin({{"a", "/a"}, {"b", "/b"}}, "").ok());
  bench.Start();
  bench.Run([&] {
    bench.directory().OnEngineReady(0);
    REQUIRE(bench.begun.size() == 1);
    CHECK(bench.begun[0].message() == "--lora-modules a: No adapter found for /a");
  });
  Bench off;
  off.slots = {0};
  REQUIRE(off.directory().Begin({{"a", "/a"}}, "").ok());
  off.Start();
  off.Run([&] {
    off.directory().OnEngineReady(0);
    REQUIRE(off.begun.size() == 1);
    CHECK(off.begun[0].message().find("--enable-lora") != std::string::npos);
  });
}

TEST_CASE("adapter directory: the next process serves what this one does, which changes no more") {
  Bench bench;
  bench.Start();
  bench.Run([&] { CHECK(*bench.directory().Share() == ""); });
  REQUIRE(bench.Load("a", "/a").ok());
  std::string text;
  bench.Run([&] {
    text = *bench.directory().Share();
    bench.hands_over = true;
  });
  CHECK(bench.Load("b", "/b").code() == StatusCode::kUnavailable);
  CHECK(bench.Unload("a").code() == StatusCode::kUnavailable);
  (void)bench.TakeCalls();
  bench.Run([&] { bench.directory().OnEngineReady(0); });
  CHECK(bench.TakeCalls().empty());
  bench.Run([&] { bench.hands_over = false; });
  CHECK(bench.Unload("a").ok());

  Bench next;
  REQUIRE(next.directory().Begin({}, text).ok());
  CHECK(next.directory().has_begun());
  CHECK(next.directory().served()->Find("a") != nullptr);
  next.Start();
  next.Run([&] { next.directory().OnEngineReady(0); });
  CHECK(next.TakeCalls() == Texts{Add(0, "a", 1, "/a")});
  CHECK(next.Load("b", "/b").ok());
  CHECK(next.TakeCalls() == Texts{Add(0, "b", 2, "/b"), "publish"});
}

TEST_CASE("adapter directory: a process that takes over loads what its flags add") {
  Bench bench;
  bench.Start();
  REQUIRE(bench.Load("a", "/a").ok());
  Bench next;
  std::string text;
  bench.Run([&] { text = *bench.directory().Share(); });
  REQUIRE(next.directory().Begin({{"b", "/b"}}, text).ok());
  CHECK_FALSE(next.directory().has_begun());
  next.Start();
  next.Run([&] {
    next.directory().OnEngineReady(0);
    CHECK(next.begun == std::vector<Status>{OkStatus()});
  });
  CHECK(next.TakeCalls() == Texts{Add(0, "b", 2, "/b")});
}

TEST_CASE("adapter directory: nothing is shared while it changes") {
  Bench bench;
  bench.answer = [](int, std::string_view) { return Reply(); };
  bench.Start();
  std::future<Status> loaded = bench.BeginLoad("a", "/a");
  CHECK(bench.NextCalls() == Texts{Add(0, "a", 1, "/a")});
  bench.Run([&] {
    CHECK(bench.directory().Share().status().code() == StatusCode::kUnavailable);
    bench.unanswered[0](wire::PackedBool(true));
  });
  CHECK(Bench::Wait(std::move(loaded)).ok());
  bench.Run([&] { CHECK_FALSE(bench.directory().Share()->empty()); });
}

}  // namespace
}  // namespace tandem
