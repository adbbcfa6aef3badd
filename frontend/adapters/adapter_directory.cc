#include "frontend/adapters/adapter_directory.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/log_event.h"
#include "frontend/net/ask_shard.h"
#include "frontend/openai/json.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {
namespace {

constexpr std::string_view kLoad = "add_lora";
constexpr std::string_view kUnload = "remove_lora";
// A slow disk may take that long; an engine that dies ends the wait at once.
constexpr double kReplySeconds = 600;
// Of adapters that requests name: loads that wait, and failures. Reading the files of a bad one
// again for every request that names it would keep others waiting.
constexpr size_t kMostResolved = 64, kMostFailures = 1000;
constexpr double kFailureSeconds = 10;

// engine: that it is about alone, or kAll.
constexpr int kAll = -1;
void LogAdapter(LogLevel level, std::string_view what, const wire::LoraRequest& lora,
                int engine = kAll, const Status& why = OkStatus()) {
  LogEvent event(level, __FILE__, __LINE__, what);
  event.AddToText("name", DumpJson(lora.name)).AddToJson("name", lora.name);
  event.Add("lora_id", lora.id);
  event.AddToText("path", DumpJson(lora.path)).AddToJson("path", lora.path);
  if (engine != kAll) event.Add("engine", engine);
  if (!why.ok()) event.Add("reason", why.message());
}

// An engine's own refusal is about what the caller named.
Status AsCallersFault(const Status& status) {
  if (status.code() != StatusCode::kInternal) return status;
  const std::string& why = status.message();
  constexpr std::string_view kPrefix = "Call to add_lora method failed: ";
  const bool has_prefix = why.starts_with(kPrefix);
  if (why.find("No adapter found") != why.npos) {
    return NotFoundError(has_prefix ? why.substr(kPrefix.size()) : why);
  }
  return InvalidArgumentError(has_prefix ? why : std::string(kPrefix) + why);
}

// What an operation on all engines came to: an engine that is not there does not count beside
// another, because it gets everything when it comes.
Status Verdict(const std::vector<Status>& results) {
  for (const Status& status : results) {
    if (!status.ok() && status.code() != StatusCode::kUnavailable) return AsCallersFault(status);
  }
  const bool one_has_it =
      std::any_of(results.begin(), results.end(), [](const Status& each) { return each.ok(); });
  return one_has_it ? OkStatus() : results.front();
}

}  // namespace

AdapterDirectory::AdapterDirectory(std::vector<std::string> base_names, Shard* owner,
                                   const Clock* clock, Calls calls, AdapterFolders folders)
    : owner_(owner),
      clock_(clock),
      calls_(std::move(calls)),
      folders_(std::move(folders)),
      table_(std::move(base_names)) {}

// ---- At the start ----

Status AdapterDirectory::Begin(const std::vector<AdapterModule>& modules,
                               std::string_view inherited) {
  const auto now = static_cast<int64_t>(clock_->Unix());
  ASSIGN_OR_RETURN(begin_with_, inherited.empty() ? table_.TakeModules(modules, now)
                                                  : table_.TakeOver(inherited, modules, now));
  has_begun_ = begin_with_.empty();
  num_unsent_.assign(static_cast<size_t>(calls_.num_engines), begin_with_.size());
  return OkStatus();
}

void AdapterDirectory::OnEngineReady(int engine) {
  if (!has_begun_) return SendAtBegin(engine);
  if (calls_.is_handing_over()) return;  // to a process that does this
  // What it has room for; the newest are the most likely to be asked for.
  const std::vector<ServedAdapter>& all = served()->list();
  const auto room = static_cast<size_t>(std::max(0, calls_.num_slots(engine)));
  for (size_t i = all.size() - std::min(room, all.size()); i < all.size(); ++i) {
    SendAgain(engine, all[i]);
  }
}

bool AdapterDirectory::HasOtherFiles(const ServedAdapters& adapters,
                                     const wire::LoraRequest& lora) {
  const ServedAdapter* const served = adapters.Find(lora.name);
  if (served == nullptr || served->lora.path != lora.path || served->files.empty()) return false;
  return AdapterFilesIdentity(lora.path) != served->files;
}

void AdapterDirectory::SendAtBegin(int engine) {
  num_unsent_[static_cast<size_t>(engine)] = begin_with_.size();
  const Status able = CheckServesAdapters(engine);
  for (const wire::LoraRequest& lora : begin_with_) {
    if (!able.ok()) return OnSentAtBegin(engine, lora, able);
    SendLoad(engine, lora, /*in_place=*/false, [this, engine, lora](const auto& result) {
      OnSentAtBegin(engine, lora, result.status());
    });
  }
}

void AdapterDirectory::OnSentAtBegin(int engine, const wire::LoraRequest& lora,
                                     const Status& status) {
  // The engine died, and gets all of them when it is back.
  if (has_begun_ || status.code() == StatusCode::kUnavailable) return;
  if (!status.ok()) {
    has_begun_ = true;
    return calls_.on_begun(
        Status(status.code(), "--lora-modules " + lora.name + ": " + status.message()));
  }
  LogAdapter(LogLevel::kInfo, "adapter loaded", lora, engine);
  --num_unsent_[static_cast<size_t>(engine)];
  has_begun_ = std::all_of(num_unsent_.begin(), num_unsent_.end(),
                           [](size_t num_left) { return num_left == 0; });
  if (has_begun_) calls_.on_begun(OkStatus());
}

void AdapterDirectory::SendAgain(int engine, const ServedAdapter& adapter) {
  const wire::LoraRequest& lora = adapter.lora;
  if (HasOtherFiles(*served(), lora)) {
    LogAdapter(LogLevel::kWarning, "adapter has other files than were loaded", lora, engine,
               FailedPreconditionError("its outputs do not go on with another engine until it is "
                                       "loaded again in place"));
  }
  calls_.call_engine(
      engine, kLoad, wire::PackedArray({wire::Packed(lora)}), [engine, lora](const auto& result) {
        const StatusCode code = result.status().code();
        if (code == StatusCode::kOk || code == StatusCode::kUnavailable) return;
        LogAdapter(LogLevel::kError, "adapter not loaded", lora, engine, result.status());
      });
}

StatusOr<std::string> AdapterDirectory::Share() const {
  if (is_busy_ || !has_begun_) {
    return UnavailableError("adapters are being loaded or unloaded; try again");
  }
  return table_.ToText();
}

// ---- Operations, one at a time ----

void AdapterDirectory::Enqueue(std::function<void()> operation) {
  waiting_.push_back(std::move(operation));
  if (!is_busy_) RunNext();
}

void AdapterDirectory::RunNext() {
  is_busy_ = true;
  const std::function<void()> operation = std::move(waiting_.front());
  waiting_.pop_front();
  operation();
}

void AdapterDirectory::EndOperation(const Reply& reply, const Status& status) {
  is_busy_ = !waiting_.empty();  // the process may be handed over as soon as it has the reply
  if (is_busy_) owner_->Post([this] { RunNext(); });
  reply(status);
}

Status AdapterDirectory::CheckMayChange() const {
  if (!has_begun_) return UnavailableError("the adapters of --lora-modules are being loaded");
  if (calls_.is_handing_over()) {
    return UnavailableError(
        "another frontend process takes over; try again, over a new connection");
  }
  return OkStatus();
}

Status AdapterDirectory::CheckServesAdapters(int engine) const {
  RETURN_IF_ERROR(calls_.check_engine(engine));
  if (calls_.num_slots(engine) > 0) return OkStatus();
  return FailedPreconditionError(
      "LoRA adapters are off in this engine: --enable-lora turns them on");
}

void AdapterDirectory::CallEngines(
    const std::function<void(int engine, UtilityCalls::Callback)>& call,
    std::function<void(const Results&)> done) {
  struct Replies {
    Results results;
    size_t num_left = 0;
    std::function<void(const Results&)> done;  // empty once it ran

    void End() {
      if (done) std::exchange(done, nullptr)(results);
    }
  };
  const auto replies = std::make_shared<Replies>();
  const auto num_engines = static_cast<size_t>(calls_.num_engines);
  replies->results.assign(
      num_engines, Status(StatusCode::kDeadlineExceeded, "the engine did not reply in time"));
  replies->num_left = num_engines;
  replies->done = std::move(done);
  owner_->At(clock_->Monotonic() + kReplySeconds, [replies] { replies->End(); });
  for (size_t i = 0; i < num_engines; ++i) {
    const auto on_reply = [replies, i](const StatusOr<wire::RawValue>& result) {
      if (!replies->done) return;
      replies->results[i] = result.status();
      if (--replies->num_left == 0) replies->End();
    };
    const int engine = static_cast<int>(i);
    const Status able = CheckServesAdapters(engine);
    if (able.ok()) {
      call(engine, on_reply);
    } else {
      on_reply(able);
    }
  }
}

void AdapterDirectory::SendLoad(int engine, wire::LoraRequest lora, bool in_place,
                                UtilityCalls::Callback callback) {
  lora.load_inplace = in_place || calls_.is_ours(engine);
  calls_.call_engine(engine, kLoad, wire::PackedArray({wire::Packed(lora)}), std::move(callback));
}

void AdapterDirectory::SendStage(int engine, const wire::LoraRequest& lora,
                                 UtilityCalls::Callback callback) {
  if (!calls_.is_ours(engine)) return SendLoad(engine, lora, /*in_place=*/true, callback);
  calls_.call_engine(engine, wire::kStageLoraMethod, wire::PackedArray({wire::Packed(lora)}),
                     std::move(callback));
}

void AdapterDirectory::SendSettle(int engine, const wire::LoraRequest& lora, bool takes_place,
                                  UtilityCalls::Callback callback) {
  calls_.call_engine(engine, wire::kSettleLoraMethod,
                     wire::PackedArray({wire::Packed(lora), wire::PackedBool(takes_place)}),
                     std::move(callback));
}

void AdapterDirectory::SendUnload(int engine, const wire::LoraRequest& lora,
                                  UtilityCalls::Callback callback) {
  calls_.call_engine(engine, kUnload, wire::PackedArray({wire::PackedInt(lora.id)}),
                     std::move(callback));
}

Awaitable<Status> AdapterDirectory::Load(AdapterModule module, bool in_place) {
  std::function<void(Reply)> ask = [this, module = std::move(module), in_place](Reply reply) {
    Enqueue(
        [this, module, in_place, reply = std::move(reply)] { BeginLoad(module, in_place, reply); });
  };
  return AskShard<Status>(owner_, std::move(ask));
}

void AdapterDirectory::BeginLoad(const AdapterModule& module, bool in_place, const Reply& reply) {
  const Status may_change = CheckMayChange();
  if (!may_change.ok()) return EndOperation(reply, may_change);
  StatusOr<ServedAdapter> adapter =
      table_.PlanLoad(module, in_place, static_cast<int64_t>(clock_->Unix()));
  if (!adapter.ok()) return EndOperation(reply, adapter.status());
  const bool replaces = served()->Find(module.name) != nullptr;
  if (replaces && calls_.num_engines > 1) return BeginReplace(*adapter, reply);
  CallEngines(
      [this, lora = adapter->lora, in_place](int engine, UtilityCalls::Callback callback) {
        SendLoad(engine, lora, in_place, std::move(callback));
      },
      [this, adapter = *adapter, reply](const Results& results) {
        OnLoaded(adapter, results, reply);
      });
}

void AdapterDirectory::OnLoaded(const ServedAdapter& adapter, const Results& results,
                                const Reply& reply) {
  const Status verdict = Verdict(results);
  const bool is_there = served()->Find(adapter.lora.name) != nullptr;
  if (!verdict.ok()) {
    LogAdapter(LogLevel::kWarning, "adapter not loaded", adapter.lora, kAll, verdict);
  }
  for (int engine = 0; engine < calls_.num_engines; ++engine) {
    const bool has_it = results[static_cast<size_t>(engine)].ok();
    if (!verdict.ok() && has_it && !is_there) {
      SendUnload(engine, adapter.lora, [](const auto&) {});
    }
  }
  if (!verdict.ok()) return EndOperation(reply, verdict);
  EndLoad(adapter, results, reply);
}

// results: of each engine, OK where it has the adapter.
void AdapterDirectory::EndLoad(const ServedAdapter& adapter, const Results& results,
                               const Reply& reply) {
  for (int engine = 0; engine < calls_.num_engines; ++engine) {
    // It has come meanwhile.
    if (!results[static_cast<size_t>(engine)].ok() && calls_.check_engine(engine).ok()) {
      SendAgain(engine, adapter);
    }
  }
  const bool is_there = served()->Find(adapter.lora.name) != nullptr;
  LogAdapter(LogLevel::kInfo, is_there ? "adapter loaded again" : "adapter loaded", adapter.lora);
  table_.Commit(adapter);
  calls_.publish(served(), &adapter.lora, [this, reply] { EndOperation(reply, OkStatus()); });
}

void AdapterDirectory::BeginReplace(const ServedAdapter& adapter, const Reply& reply) {
  CallEngines(
      [this, lora = adapter.lora](int engine, UtilityCalls::Callback callback) {
        SendStage(engine, lora, std::move(callback));
      },
      [this, adapter, reply](const Results& results) { OnStaged(adapter, results, reply); });
}

void AdapterDirectory::OnStaged(const ServedAdapter& adapter, const Results& results,
                                const Reply& reply) {
  const Status verdict = Verdict(results);
  if (!verdict.ok()) return OnNotStaged(adapter, results, verdict, reply);
  CallEngines(
      [this, lora = adapter.lora, results](int engine, const UtilityCalls::Callback& callback) {
        const bool has_it = results[static_cast<size_t>(engine)].ok();
        if (!has_it || !calls_.is_ours(engine)) return callback(wire::PackedBool(has_it));
        SendSettle(engine, lora, /*takes_place=*/true, callback);
      },
      [this, adapter, results, reply](const Results& settled) {
        for (size_t i = 0; i < settled.size(); ++i) {
          // One that is gone reads the files when it is back.
          if (settled[i].ok() || settled[i].code() == StatusCode::kUnavailable) continue;
          LogAdapter(LogLevel::kError, "adapter not loaded", adapter.lora, static_cast<int>(i),
                     settled[i]);
        }
        EndLoad(adapter, results, reply);
      });
}

// What each engine has under the name stays, where all have it still.
void AdapterDirectory::OnNotStaged(const ServedAdapter& adapter, const Results& results,
                                   const Status& why, const Reply& reply) {
  LogAdapter(LogLevel::kWarning, "adapter not loaded", adapter.lora, kAll, why);
  bool one_has_it = false;
  for (int engine = 0; engine < calls_.num_engines; ++engine) {
    if (!calls_.check_engine(engine).ok()) continue;
    if (calls_.is_ours(engine)) {
      SendSettle(engine, adapter.lora, /*takes_place=*/false, [](const auto&) {});
    } else {
      one_has_it |= results[static_cast<size_t>(engine)].ok();
    }
  }
  if (!one_has_it) return EndOperation(reply, why);
  const StatusOr<ServedAdapter> removed = table_.Remove(adapter.lora.name);
  const Status mixed(why.code(), why.message() +
                                     "; other engines have it already, so the name is " +
                                     "served no more until it is loaded again");
  calls_.publish(served(), nullptr, [this, lora = adapter.lora, mixed, reply] {
    for (int engine = 0; engine < calls_.num_engines; ++engine) {
      if (calls_.check_engine(engine).ok()) SendUnload(engine, lora, [](const auto&) {});
    }
    EndOperation(reply, mixed);
  });
}

Awaitable<Status> AdapterDirectory::Resolve(AdapterModule module) {
  std::function<void(Reply)> ask = [this, module = std::move(module)](Reply reply) {
    BeginResolve(module, std::move(reply));
  };
  return AskShard<Status>(owner_, std::move(ask));
}

void AdapterDirectory::BeginResolve(const AdapterModule& module, Reply reply) {
  const std::string& name = module.name;
  if (served()->Find(name) != nullptr) return reply(OkStatus());
  const auto failure = failures_.find(name);
  if (failure != failures_.end() && clock_->Monotonic() < failure->second.until) {
    return reply(failure->second.status);
  }
  if (!resolving_.contains(name) && resolving_.size() >= kMostResolved) {
    return reply(UnavailableError("too many adapters are being loaded; try again"));
  }
  const auto [entry, is_first] = resolving_.try_emplace(name);
  entry->second.push_back(std::move(reply));
  if (!is_first) return;
  Enqueue([this, module] {
    const Reply end = [this, name = module.name](const Status& status) {
      EndResolve(name, status);
    };
    // By a call, meanwhile.
    if (served()->Find(module.name) != nullptr) return EndOperation(end, OkStatus());
    BeginLoad(module, /*in_place=*/false, end);
  });
}

void AdapterDirectory::EndResolve(const std::string& name, const Status& status) {
  const auto replies = resolving_.extract(name);
  if (status.code() == StatusCode::kInvalidArgument) {
    if (failures_.size() >= kMostFailures) failures_.clear();
    failures_[name] = {status, clock_->Monotonic() + kFailureSeconds};
  } else {
    failures_.erase(name);
  }
  for (const Reply& reply : replies.mapped()) reply(status);
}

Awaitable<Status> AdapterDirectory::Unload(std::string name) {
  std::function<void(Reply)> ask = [this, name = std::move(name)](Reply reply) {
    Enqueue([this, name, reply = std::move(reply)] { BeginUnload(name, reply); });
  };
  return AskShard<Status>(owner_, std::move(ask));
}

void AdapterDirectory::BeginUnload(const std::string& name, const Reply& reply) {
  const Status may_change = CheckMayChange();
  if (!may_change.ok()) return EndOperation(reply, may_change);
  StatusOr<ServedAdapter> removed = table_.Remove(name);
  if (!removed.ok()) return EndOperation(reply, removed.status());
  const auto unload = [this, lora = removed->lora, reply] {
    CallEngines(
        [this, lora](int engine, UtilityCalls::Callback callback) {
          SendUnload(engine, lora, std::move(callback));
        },
        [this, lora, reply](const Results& results) { OnUnloaded(lora, results, reply); });
  };
  calls_.publish(served(), nullptr, unload);
}

void AdapterDirectory::OnUnloaded(const wire::LoraRequest& lora, const Results& results,
                                  const Reply& reply) {
  LogAdapter(LogLevel::kInfo, "adapter unloaded", lora);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].ok() || results[i].code() == StatusCode::kUnavailable) continue;
    LogAdapter(LogLevel::kWarning, "adapter not unloaded", lora, static_cast<int>(i), results[i]);
  }
  EndOperation(reply, OkStatus());
}

}  // namespace tandem
