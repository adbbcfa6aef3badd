#include "frontend/engine_client/resumption.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/log_event.h"

namespace tandem {
namespace {

// What the request may grow to.
int64_t MostTokens(const RunningRequest& running) {
  return static_cast<int64_t>(running.num_prompt_tokens) +
         running.request.sampling_params.max_tokens;
}

Status LostItsAdapter() {
  return UnavailableError(
      "the request's LoRA adapter was loaded again meanwhile, or its files were changed, and the "
      "engine that had the weights before is gone; send the request again");
}

}  // namespace

Resumption::Resumption(ResumeLimits limits, RunningRequests* running, EngineHealth* health,
                       Calls calls)
    : limits_(limits), running_(running), health_(health), calls_(std::move(calls)) {}

// ---- An engine dies ----

void Resumption::OnLost(int engine_index, const Status& why, double now) {
  lost_since_left_.insert(engine_index);
  NoticeEnd(engine_index);
  if (RunsSuspect(engine_index)) EndProbation();
  const std::vector<RequestId> ids = running_->RequestsOf(engine_index);
  const size_t num_waiting_before = waiting_.size();
  for (const RequestId& request_id : ids) OnDeath(request_id, why, now);
  if (ids.empty()) return;
  LOG_ERROR << "engine " << engine_index % running_->num_engines() << " took " << ids.size()
            << " requests with it, " << waiting_.size() - num_waiting_before
            << " of them will be sent again";
}

int64_t Resumption::OnTakenOver(int engine_index, int64_t max_model_len, double now) {
  NoticeEnd(engine_index);
  const std::optional<RequestId> suspect =
      RunsSuspect(engine_index) ? std::optional(EndProbation()) : std::nullopt;
  int64_t num_moved = 0;
  for (const RequestId& request_id :
       running_->RequestsOf(Predecessor(engine_index, running_->num_engines()))) {
    RunningRequest* const running = running_->Find(request_id);
    const bool can_move = running->is_kept && !IsBound(running);
    if (!can_move || MostTokens(*running) > max_model_len) continue;
    ++num_moved;
    running_->TakeBack(running);
    Wait({.request_id = request_id,
          .order = running->order,
          .is_suspect = suspect == request_id,
          .deadline = now + limits_.timeout_s,
          .why = UnavailableError("the engine was replaced"),
          .is_alive = true});
  }
  return num_moved;
}

void Resumption::OnDeath(const RequestId& request_id, const Status& why, double now) {
  RunningRequest* const running = running_->Find(request_id);
  if (running == nullptr) return;  // another one's last call aborted it
  if (!running->is_kept) return Fail(request_id, ResumeOutcome::kNotKept, why);
  if (IsBound(running)) return Fail(request_id, ResumeOutcome::kNotKept, LostItsAdapter());
  const EngineDeaths::Verdict verdict = running->deaths.OnDeath(limits_);
  switch (verdict) {
    case EngineDeaths::Verdict::kTooMany:
      return Fail(request_id, ResumeOutcome::kTooManyRestarts,
                  UnavailableError(why.message() + "; a request survives " +
                                   std::to_string(limits_.max_restarts) + " such ends"));
    case EngineDeaths::Verdict::kIsTheCause:
      LOG_EVENT(LogLevel::kError, "request refused")
          .Add("id", request_id)
          .Add("error", "its engine ended each time, also when it ran alone");
      return Fail(request_id, ResumeOutcome::kEndedEngine,
                  InternalError("the engine ends each time it runs this request"));
    case EngineDeaths::Verdict::kResumeAlone:
    case EngineDeaths::Verdict::kResume:
      break;
  }
  running_->LeaveEngine(running);
  Wait({.request_id = request_id,
        .order = running->order,
        .is_suspect = verdict == EngineDeaths::Verdict::kResumeAlone,
        .deadline = now + limits_.timeout_s,
        .why = why});
}

void Resumption::WaitForEngine(const RequestId& request_id, const Status& why, double now) {
  Wait({.request_id = request_id,
        .order = running_->Find(request_id)->order,
        .deadline = now + limits_.timeout_s,
        .why = why,
        .is_alive = true});
}

void Resumption::TakeBack(const RequestId& request_id, const Status& why, double now) {
  RunningRequest* const running = running_->Find(request_id);
  if (!running->is_kept || IsBound(running)) return;
  running_->TakeBack(running);
  WaitForEngine(request_id, why, now);
}

void Resumption::Wait(Waiting waiting) {
  const auto later =
      std::find_if(waiting_.begin(), waiting_.end(),
                   [&waiting](const Waiting& other) { return other.order > waiting.order; });
  waiting_.insert(later, std::move(waiting));
}

void Resumption::Report(const Waiting& waiting, ResumeOutcome outcome) {
  if (!waiting.is_alive) calls_.report(outcome);
}

void Resumption::Fail(const RequestId& request_id, ResumeOutcome outcome, const Status& status) {
  calls_.report(outcome);
  running_->Fail(request_id, status);
}

// ---- An engine is there ----

void Resumption::SendWaiting(double now) {
  EndPassedProbation(now);
  if (waiting_.empty()) return;
  FailBound();
  if (!probation_) BeginProbation(now);
  SendOthers();
}

bool Resumption::RunsSuspect(int engine_index) const {
  return probation_ && probation_->request_id && probation_->engine_index == engine_index;
}

RequestId Resumption::EndProbation() {
  const Probation probation = *std::exchange(probation_, std::nullopt);
  health_->SetReserved(probation.engine_index, false);
  const bool has_ended = probation.request_id && !health_->connected(probation.engine_index);
  if (calls_.release) calls_.release(probation.engine_index, has_ended);
  return probation.request_id.value_or("");
}

void Resumption::EndPassedProbation(double now) {
  if (!probation_ || !probation_->request_id) return;
  RunningRequest* const running = running_->Find(*probation_->request_id);
  if (running != nullptr && !running->deaths.has_passed()) return;
  const RequestId request_id = EndProbation();
  if (running == nullptr) return;
  running->deaths.OnPassed();
  const bool another_waits = std::any_of(waiting_.begin(), waiting_.end(),
                                         [](const Waiting& each) { return each.is_suspect; });
  if (!another_waits) return;
  TakeBack(request_id, UnavailableError("the engine runs other requests first"), now);
}

void Resumption::BeginProbation(double now) {
  for (const Waiting& each : waiting_) {
    if (!each.is_suspect) continue;
    const std::optional<int> engine_index =
        FreeEngine(running_->Find(each.request_id)->request.data_parallel_rank);
    if (!engine_index) continue;
    probation_ = {.engine_index = *engine_index};
    health_->SetReserved(*engine_index, true);
    if (!calls_.reserve || calls_.reserve(*engine_index)) OnReserved(now);
    return;
  }
}

void Resumption::OnReserved(double now) {
  FailBound();
  if (!SendSuspect(probation_->engine_index, now)) EndProbation();
}

bool Resumption::SendSuspect(int engine_index, double now) {
  if (!IsFree(engine_index)) return false;  // it died, or took over, while others left it
  const auto first = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
    const std::optional<int> rank = running_->Find(each.request_id)->request.data_parallel_rank;
    return each.is_suspect && (!rank || *rank == engine_index);
  });
  if (first == waiting_.end()) return false;
  const Waiting suspect = std::move(*first);
  waiting_.erase(first);
  if (IsBound(running_->Find(suspect.request_id))) {
    Fail(suspect.request_id, ResumeOutcome::kNotKept, LostItsAdapter());
    ForgetEnded();
    return false;
  }
  probation_->request_id = suspect.request_id;
  RenewDeadlines(now);
  Send(suspect, engine_index, /*alone=*/true);
  return true;
}

bool Resumption::IsFree(int engine_index) const {
  const bool is_empty = running_->num_per_engine()[static_cast<size_t>(engine_index)] == 0;
  return is_empty && health_->is_ours(engine_index);
}

std::optional<int> Resumption::FreeEngine(std::optional<int> rank) const {
  for (int index = 0; index < running_->num_engines(); ++index) {
    const bool fits = (!rank || *rank == index) && IsFree(index);
    if (fits && health_->CheckTakesRequests(index).ok()) return index;
  }
  return std::nullopt;
}

// The others wait for a suspect from now on, not for an engine.
void Resumption::RenewDeadlines(double now) {
  for (Waiting& each : waiting_) each.deadline = now + limits_.timeout_s;
}

// ---- Suspects of other shards ----

void Resumption::Leave(int engine_index, double now) {
  lost_since_left_.erase(engine_index);
  unseen_ends_.erase(engine_index);
  health_->SetReserved(engine_index, true);
  for (const RequestId& request_id : running_->RequestsOf(engine_index)) {
    TakeBack(request_id, UnavailableError("the engine runs another request alone"), now);
  }
  RenewDeadlines(now);
}

void Resumption::NoticeEnd(int engine_index) {
  if (unseen_ends_.erase(engine_index) > 0) ComeBack(engine_index, /*has_ended=*/false);
}

void Resumption::ComeBack(int engine_index, bool has_ended) {
  if (has_ended && !lost_since_left_.contains(engine_index)) {
    unseen_ends_.insert(engine_index);
    return;
  }
  // It may have been asked for here meanwhile.
  if (probation_ && probation_->engine_index == engine_index) return;
  health_->SetReserved(engine_index, false);
}

void Resumption::SendOthers() {
  std::vector<Waiting> left;
  std::vector<RequestId> bound;
  for (Waiting& each : waiting_) {
    const std::optional<int> rank = running_->Find(each.request_id)->request.data_parallel_rank;
    const StatusOr<int> engine_index =
        each.is_suspect ? StatusOr<int>(each.why) : calls_.choose_engine(rank);
    const bool can_go = engine_index.ok() && health_->is_ours(*engine_index);
    if (can_go && IsBound(running_->Find(each.request_id))) {
      bound.push_back(each.request_id);
    } else if (can_go) {
      Send(each, *engine_index, /*alone=*/false);
    } else {
      left.push_back(std::move(each));
    }
  }
  waiting_ = std::move(left);
  for (const RequestId& request_id : bound) {
    Fail(request_id, ResumeOutcome::kNotKept, LostItsAdapter());
  }
  if (!bound.empty()) ForgetEnded();
}

void Resumption::Send(const Waiting& waiting, int engine_index, bool alone) {
  RunningRequest* const running = running_->Find(waiting.request_id);
  // The outputs from before a move count on, or the next death would make a suspect of the request.
  if (alone || !waiting.is_alive) running->deaths.OnSent(alone);
  running_->JoinEngine(running, engine_index);
  LOG_EVENT(LogLevel::kInfo, waiting.is_alive ? "request moved" : "request resumed")
      .Add("id", running->request.request_id)
      .Add("engine", engine_index)
      .Add("output_tokens", running->request.own.num_prior_output_tokens)
      .Add("alone", alone ? "yes" : "no");
  calls_.send(*running, engine_index);
  Report(waiting, ResumeOutcome::kResumed);
  running->sink->OnEngineChange(engine_index);
}

// ---- Waiting has an end ----

void Resumption::ForgetEnded() {
  std::erase_if(waiting_, [this](const Waiting& each) {
    if (running_->Find(each.request_id) != nullptr) return false;
    Report(each, ResumeOutcome::kAborted);
    return true;
  });
}

bool Resumption::IsBound(RunningRequest* running) const {
  const bool may_be = running->has_outputs() && !running->request.lora_request.is_nil() &&
                      !running->has_older_adapter && calls_.has_other_files;
  if (may_be) {
    const auto lora = wire::UnpackLoraRequest(running->request.lora_request);
    running->has_older_adapter = lora.ok() && calls_.has_other_files(*lora);
  }
  return running->is_bound();
}

void Resumption::FailBound() {
  ForgetEnded();
  std::vector<RequestId> bound;
  std::erase_if(waiting_, [&](const Waiting& each) {
    if (!running_->Find(each.request_id)->is_bound()) return false;
    bound.push_back(each.request_id);
    return true;
  });
  for (const RequestId& request_id : bound) {
    Fail(request_id, ResumeOutcome::kNotKept, LostItsAdapter());
  }
  if (!bound.empty()) ForgetEnded();  // what the sinks' last calls have aborted
}

void Resumption::Expire(double now) {
  ForgetEnded();
  std::vector<Waiting> expired;
  std::erase_if(waiting_, [&](const Waiting& each) {
    if (each.deadline > now) return false;
    expired.push_back(each);
    return true;
  });
  for (const Waiting& each : expired) {
    if (running_->Find(each.request_id) == nullptr) continue;
    Fail(each.request_id, ResumeOutcome::kTimeout,
         UnavailableError(each.why.message() + "; no engine has come back within " +
                          std::to_string(static_cast<int64_t>(limits_.timeout_s)) + " s"));
  }
}

std::optional<double> Resumption::next_deadline() const {
  std::optional<double> next;
  for (const Waiting& each : waiting_) {
    if (!next || each.deadline < *next) next = each.deadline;
  }
  return next;
}

}  // namespace tandem
