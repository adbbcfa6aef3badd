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
  RequestId id;  // "<first choice's id>~p<attempt>": unlike that of any resend
  std::vector<RequestId> choices;
  int num_attempts = 0;
  int engine_index = kNoEngine;
};

Prefills::Prefills(RunningRequests* running, Calls calls)
    : running_(running), calls_(std::move(calls)) {}

Prefills::~Prefills() = default;

void Prefills::Begin(std::vector<RequestId> choices, int engine_index) {
  auto prefill = std::make_unique<Prefill>();
  prefill->owner = this;
  prefill->choices = std::move(choices);
  Send(std::move(prefill), engine_index);
}

void Prefills::Send(std::unique_ptr<Prefill> prefill, int engine_index) {
  const RequestId& first = prefill->choices.front();
  const RunningRequest* const running = running_->Find(first);
  CHECK(running != nullptr && running->is_kept && running->engine_index == kNoEngine) << first;
  prefill->id = first + "~p" + std::to_string(++prefill->num_attempts);
  prefill->engine_index = engine_index;
  const wire::EngineCoreRequest request = PrefillOf(running->request, prefill->id);
  running_->AddPrefill(prefill->id, engine_index, prefill.get());
  prefills_[request.request_id] = std::move(prefill);
  calls_.send(request, engine_index);
}

std::unique_ptr<Prefills::Prefill> Prefills::Take(const RequestId& prefill_id) {
  const auto position = prefills_.find(prefill_id);
  CHECK(position != prefills_.end()) << prefill_id;
  std::unique_ptr<Prefill> prefill = std::move(position->second);
  prefills_.erase(position);
  std::erase_if(prefill->choices,
                [this](const RequestId& id) { return running_->Find(id) == nullptr; });
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
  calls_.go_on(prefill->choices, has_kv ? *output.kv_transfer_params : wire::RawValue());
}

void Prefills::OnFailed(const RequestId& prefill_id, const Status& why) {
  std::unique_ptr<Prefill> prefill = Take(prefill_id);
  if (prefill->choices.empty()) return;
  // What one engine refuses, all refuse: the one that decodes has the reason for the client.
  const bool may_retry =
      prefill->num_attempts < kMaxAttempts && why.code() != StatusCode::kInvalidArgument;
  const StatusOr<int> next =
      may_retry ? calls_.choose_engine(running_->Find(prefill->choices.front())->request,
                                       prefill->engine_index)
                : StatusOr<int>(why);
  LOG_EVENT(LogLevel::kWarning, "prefill failed")
      .Add("id", prefill_id)
      .Add("error", why.message())
      .Add("next", next.ok() ? "engine " + std::to_string(*next) : "computed where it is decoded");
  if (!next.ok()) return calls_.go_on(prefill->choices, {});
  const std::vector<RequestId> choices = prefill->choices;
  Send(std::move(prefill), *next);
  for (const RequestId& id : choices) {
    RunningRequest* const running = running_->Find(id);
    if (running != nullptr) running->sink->OnEngineChange(*next);
  }
}

void Prefills::OnLost(int engine_index, const Status& why) {
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
    return true;
  });
}

}  // namespace tandem
