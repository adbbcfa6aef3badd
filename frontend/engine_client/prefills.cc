#include "frontend/engine_client/prefills.h"

#include <string>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/log_event.h"
#include "frontend/engine_client/prefill_request.h"

namespace tandem {
namespace {

constexpr int kMaxAttempts = 2;

// Unlike that of any resend.
RequestId PrefillId(const RequestId& first_choice, int attempt) {
  return first_choice + "~p" + std::to_string(attempt);
}

}  // namespace

// The prompt's choices, and the sink of what the engine sends for it.
struct Prefills::Prefill final : OutputSink {
  void OnOutput(const wire::EngineCoreOutput& output, double timestamp) override {
    if (!output.finished()) return;
    if (output.finish_reason == wire::FinishReason::kAbort) {
      return owner->OnFailed(id, UnavailableError("the engine aborted it"));
    }
    owner->OnDone(id, output, timestamp);
  }
  void OnError(const Status& status) override { owner->OnFailed(id, status); }

  Prefills* owner = nullptr;
  RequestId id;
  std::vector<RequestId> choices;
  int num_attempts = 0;
  int engine_index = kNoEngine;    // that has it or, while it waits, that its choices count for
  std::optional<int> failed = {};  // an engine
  bool is_beginning = true;        // no sink has been called
};

Prefills::Prefills(RunningRequests* running, int num_clients, Calls calls)
    : running_(running), calls_(std::move(calls)), room_(running->num_engines(), num_clients) {}

Prefills::~Prefills() = default;

int Prefills::Begin(std::vector<RequestId> choices, int engine_index) {
  auto prefill = std::make_unique<Prefill>();
  prefill->owner = this;
  prefill->choices = std::move(choices);
  prefill->engine_index = engine_index;
  const RequestId first = prefill->choices.front();
  const int64_t order = Wait(std::move(prefill));
  SendWaiting();
  const auto waiting = waiting_.find(order);
  if (waiting != waiting_.end()) waiting->second->is_beginning = false;
  const auto sent = prefills_.find(PrefillId(first, 1));
  return sent == prefills_.end() ? engine_index : sent->second->engine_index;
}

int64_t Prefills::Wait(std::unique_ptr<Prefill> prefill) {
  const RunningRequest* const first = running_->Find(prefill->choices.front());
  CHECK(first != nullptr) << prefill->choices.front();
  const int64_t order = first->order;
  waiting_[order] = std::move(prefill);
  return order;
}

void Prefills::SendWaiting() {
  if (std::exchange(is_sending_, true)) return;  // from inside a sink's call
  while (!waiting_.empty() && SendFirst()) {
  }
  is_sending_ = false;
}

// False: it has to wait, and so have those after it.
bool Prefills::SendFirst() {
  Prefill* const first = waiting_.begin()->second.get();
  std::erase_if(first->choices, [this](const RequestId& id) { return HasEnded(id); });
  StatusOr<int> engine = UnavailableError("all have ended");
  if (!first->choices.empty()) {
    const wire::EngineCoreRequest& request = running_->Find(first->choices.front())->request;
    const size_t num_tokens = request.prompt_token_ids.size();
    engine = calls_.choose_engine(request, first->failed,
                                  [&](int index) { return room_.Fits(index, num_tokens); });
    if (engine.status().code() == StatusCode::kResourceExhausted) return false;
  }
  std::unique_ptr<Prefill> prefill = std::move(waiting_.begin()->second);
  waiting_.erase(waiting_.begin());
  if (prefill->choices.empty()) return true;
  if (engine.ok()) {
    Send(std::move(prefill), *engine);
  } else {
    (void)calls_.go_on(prefill->choices, {});
  }
  return true;
}

void Prefills::Send(std::unique_ptr<Prefill> prefill, int engine_index) {
  const RequestId& first = prefill->choices.front();
  const RunningRequest* const running = running_->Find(first);
  CHECK(running != nullptr && running->is_kept && running->engine_index == kNoEngine) << first;
  prefill->id = PrefillId(first, ++prefill->num_attempts);
  const bool is_moved = std::exchange(prefill->engine_index, engine_index) != engine_index;
  const bool has_waited = !std::exchange(prefill->is_beginning, false);
  const std::vector<RequestId> choices = prefill->choices;
  const wire::EngineCoreRequest request = PrefillOf(running->request, prefill->id);
  running_->AddPrefill(prefill->id, engine_index, prefill.get());
  room_.Begin(prefill->id, engine_index, request.prompt_token_ids.size());
  prefills_[request.request_id] = std::move(prefill);
  calls_.send(request, engine_index);
  if (!has_waited) return;
  for (const RequestId& id : choices) {
    RunningRequest* choice = running_->Find(id);
    if (choice != nullptr && is_moved) choice->sink->OnEngineChange(engine_index);
    choice = running_->Find(id);
    if (choice != nullptr) choice->sink->OnWaited();
  }
}

std::unique_ptr<Prefills::Prefill> Prefills::Take(const RequestId& prefill_id) {
  const auto position = prefills_.find(prefill_id);
  CHECK(position != prefills_.end()) << prefill_id;
  std::unique_ptr<Prefill> prefill = std::move(position->second);
  prefills_.erase(position);
  std::erase_if(prefill->choices, [this](const RequestId& id) { return HasEnded(id); });
  return prefill;
}

void Prefills::OnDone(const RequestId& prefill_id, const wire::EngineCoreOutput& output,
                      double timestamp) {
  const std::unique_ptr<Prefill> prefill = Take(prefill_id);
  for (const RequestId& id : prefill->choices) {
    RunningRequest* const running = running_->Find(id);  // another one's call may have aborted it
    if (running != nullptr) running->sink->OnPrefilled(output, timestamp);
  }
  const bool has_kv = output.kv_transfer_params && !output.kv_transfer_params->is_nil();
  if (!has_kv && !std::exchange(has_warned_, true)) {
    LOG_WARNING << "engine " << prefill->engine_index
                << " computes prompts and leaves their KV to nobody: it needs a "
                   "--kv-transfer-config, and prompts of more than one block; they are computed "
                   "again where they are decoded";
  }
  const KvReaders readers =
      calls_.go_on(prefill->choices, has_kv ? *output.kv_transfer_params : wire::RawValue());
  if (!readers.sent_ids.empty()) return room_.AwaitReaders(prefill_id, readers);
  const int holder = room_.End(prefill_id);
  if (has_kv && holder != kNoEngine) running_->QueueAbort(holder, prefill_id);
}

void Prefills::OnFailed(const RequestId& prefill_id, const Status& why) {
  std::unique_ptr<Prefill> prefill = Take(prefill_id);
  room_.End(prefill_id);
  if (prefill->choices.empty()) return;
  // What one engine refuses, all refuse: the one that decodes has the reason for the client.
  const bool may_retry =
      prefill->num_attempts < kMaxAttempts && why.code() != StatusCode::kInvalidArgument;
  prefill->failed = prefill->engine_index;
  const StatusOr<int> next =
      may_retry ? calls_.choose_engine(running_->Find(prefill->choices.front())->request,
                                       prefill->failed, [](int) { return true; })
                : StatusOr<int>(why);
  LOG_EVENT(LogLevel::kWarning, "prefill failed")
      .Add("id", prefill_id)
      .Add("error", why.message())
      .Add("next", next.ok() ? "engine " + std::to_string(*next) : "computed where it is decoded");
  if (!next.ok()) {
    (void)calls_.go_on(prefill->choices, {});
    return;
  }
  Wait(std::move(prefill));  // its turn comes before that of later ones
  SendWaiting();
}

void Prefills::OnLost(int engine_index, const Status& why) {
  for (const PrefillRoom::GivenUp& one : room_.OnLost(engine_index)) {
    running_->QueueAbort(one.engine_index, one.prefill_id);
  }
  for (const RequestId& id : running_->RequestsOf(engine_index)) {
    const RunningRequest* const running = running_->Find(id);
    if (running != nullptr && running->is_prefill) running_->Fail(id, why);
  }
}

void Prefills::ForgetEnded() {
  std::erase_if(prefills_, [this](const auto& entry) {
    for (const RequestId& id : entry.second->choices) {
      if (running_->contains(id)) return false;
    }
    running_->Abort(entry.first);
    room_.End(entry.first);
    return true;
  });
}

}  // namespace tandem
