#include "tests/simulation/simulation.h"

#include <algorithm>
#include <utility>

#include "proto_msgpack/codec.h"

namespace tandem {

Simulation::Simulation(uint64_t seed) : random_(seed), scenario_(DrawScenario(seed, &random_)) {
  coverage_.num_requests = static_cast<int64_t>(scenario_.streams.size());
  for (const auto& [id, stream] : scenario_.streams) {
    if (stream.needs.images) {
      coverage_.num_images += static_cast<int64_t>(stream.needs.images->size());
    }
  }
  StartEngine();
}

Status Simulation::Run() {
  while (next_ < scenario_.order.size() || !grammars_.empty() || engine_->HasWork()) {
    Act();
    const Status stepped = StepOnce();
    if (stepped.code() == StatusCode::kUnavailable) {
      Restart();
    } else {
      RETURN_IF_ERROR(stepped);
    }
  }
  if (is_paused_) {
    Resume();
    while (engine_->HasWork()) {
      const Status stepped = StepOnce();
      if (stepped.code() == StatusCode::kUnavailable) return OkStatus();
      RETURN_IF_ERROR(stepped);
    }
  }
  CountTransfers();
  RETURN_IF_ERROR(frontends_.CheckEnd());
  return invariants_->CheckEnd();
}

Status Simulation::StepOnce() {
  if (--steps_left_ < 0) return InternalError("no end in sight\n" + engine_->DebugString());
  invariants_->BeginStep();
  const Status status = engine_->BeginStep();
  if (status.ok()) {
    if (random_.Chance(scenario_.abort_chance)) AbortWhileExecuting();
    engine_->EndStep();
  }
  ++coverage_.num_steps;
  std::vector<ClientMessage> messages;
  engine_->TakeMessages(&messages);
  for (ClientMessage& message : messages) {
    RETURN_IF_ERROR(frontends_.Receive(message));
    engine_->Recycle(std::move(message.outputs));
  }
  RETURN_IF_ERROR(status);
  return invariants_->CheckStep();
}

// ---- engines come and go ----

void Simulation::StartEngine() {
  CountTransfers();
  executor_ = std::make_unique<SimExecutor>(scenario_.limits);
  executor_->FailRequestsWhere([this](const RequestId& id, std::span<const TokenId> token_ids) {
    const Stream& stream = scenario_.streams.at(id);
    return stream.fails_after == token_ids.size() - stream.num_prompt_tokens();
  });
  executor_->BeginPrefixesWith(
      [this](const RequestId& id) { return scenario_.streams.at(id).first_hash(); });
  if (scenario_.drafter_seed) executor_->DraftWith((*scenario_.drafter_seed)++);
  if (scenario_.connector_seed) StartConnector();
  if (scenario_.is_lossy) executor_->LoseAfter(random_.Between(1, 60));

  EngineCoreOptions options = scenario_.options;
  options.kv_connector = connector_.get();
  options.needs_of = [this](const wire::EngineCoreRequest& request) {
    return scenario_.streams.at(request.request_id).needs;
  };
  auto engine = EngineCore::Create(options, executor_.get(), &clock_);
  CHECK(engine.ok()) << engine.status().ToString();
  engine_ = std::move(*engine);
  frontends_.ListenTo(&engine_->scheduler(), connector_.get());
  invariants_ = std::make_unique<Invariants>(&scenario_.options, engine_.get(), executor_.get(),
                                             connector_.get(), &coverage_);
  // Each step computes a token of some request; preemptions may discard what a request has, but the
  // first in line always progresses.
  int64_t num_tokens = 0;
  for (const auto& [id, stream] : scenario_.streams) {
    num_tokens += static_cast<int64_t>(stream.request.prompt_token_ids.size()) +
                  stream.request.sampling_params.max_tokens;
  }
  steps_left_ = 1000 + 20 * num_tokens;
  if (connector_) steps_left_ += 100 * static_cast<int64_t>(scenario_.streams.size());
}

void Simulation::StartConnector() {
  connector_ = std::make_unique<SimConnector>((*scenario_.connector_seed)++, executor_.get());
  executor_->TransferWith([this](KvTransferReport* news) { return connector_->Work(news); });
  executor_->KeepWhere([this](BlockId block) {
    const std::vector<Request*> holding = engine_->scheduler().Holding();
    return std::any_of(holding.begin(), holding.end(), [=](const Request* request) {
      const std::vector<BlockId>& table = request->held.table;
      return std::find(table.begin(), table.end(), block) != table.end();
    });
  });
}

// The engine's process died: a new one gets every live request again.
void Simulation::Restart() {
  ++coverage_.num_restarts;
  scenario_.is_lossy = random_.Chance(0.5);
  arrived_.clear();
  grammars_.clear();
  is_paused_ = false;
  StartEngine();
  for (const RequestId& id : scenario_.order) {
    Stream& stream = scenario_.streams.at(id);
    if (stream.ended) stream.num_finished_ids = 1;  // the dead engine may not have sent it
    if (!stream.sent || stream.ended) continue;
    stream.num_finished_ids = 0;
    if (!stream.refused) Continue(&stream);
    Send(&stream);
  }
}

// The request with what it has emitted so far; it ends with the same answer.
void Simulation::Continue(Stream* stream) {
  wire::EngineCoreRequest& request = stream->request;
  request.prompt_token_ids.resize(stream->num_prompt_tokens());
  request.prompt_token_ids.insert(request.prompt_token_ids.end(), stream->emitted.begin(),
                                  stream->emitted.end());
  request.own.num_prior_output_tokens = static_cast<int32_t>(stream->emitted.size());
}

void Simulation::CountTransfers() {
  if (executor_) coverage_.num_encoded_images += executor_->num_encoded_images();
  if (executor_) coverage_.num_continued_images += executor_->num_continued_images();
  if (!connector_) return;
  coverage_.num_kv_loads += connector_->num_loads();
  coverage_.num_kv_load_failures += connector_->num_failures();
  coverage_.num_kept_tables += connector_->num_kept();
}

// ---- between two steps ----

void Simulation::Act() {
  clock_.Advance(0.001 * random_.Between(0, 20));
  for (EngineEvent& event : arrived_) engine_->Handle(std::move(event));
  arrived_.clear();
  while (next_ < scenario_.order.size() &&
         (random_.Chance(scenario_.arrival_chance) || !engine_->HasWork())) {
    Send(&scenario_.streams.at(scenario_.order[next_++]));
  }
  EndSomeGrammarWaits();
  if (random_.Chance(scenario_.abort_chance)) AbortSome();
  if (random_.Chance(0.02)) SendAgain();
  if (random_.Chance(scenario_.call_chance)) {
    CallSomething();
  } else if (is_paused_ && (random_.Chance(0.2) || !engine_->HasWork())) {
    Resume();
  }
}

void Simulation::Send(Stream* stream) {
  stream->sent = true;
  stream->has_record = false;
  stream->may_abort = false;
  stream->sent_while_paused = is_paused_;
  engine_->Handle(stream->request);
  const RequestId& id = stream->request.request_id;
  const Request* added = engine_->scheduler().Find(id);
  if (added == nullptr || !stream->needs.grammar) return;
  grammars_.push_back({id, added->order,
                       stream->grammar_fails ? InvalidArgumentError("no such rule") : OkStatus()});
  ++coverage_.num_grammars;
}

// The same ADD a second time, which must change nothing.
void Simulation::SendAgain() {
  const RequestId& id = SomeId();
  if (engine_->scheduler().Find(id) != nullptr) {
    engine_->Handle(scenario_.streams.at(id).request);
  }
}

// They end in any order, some of them after their request.
void Simulation::EndSomeGrammarWaits() {
  for (size_t i = grammars_.size(); i-- > 0;) {
    if (!random_.Chance(0.3)) continue;
    engine_->Handle(grammars_[i]);
    grammars_.erase(grammars_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void Simulation::AbortSome() {
  wire::AbortRequest ids;
  const int32_t count = random_.Between(1, 3);
  for (int32_t i = 0; i < count; ++i) ids.push_back(SomeId());
  if (random_.Chance(0.2)) ids.push_back("nobody");
  engine_->Handle(ids);
  for (const RequestId& id : ids) {
    const auto found = scenario_.streams.find(id);
    if (found == scenario_.streams.end()) continue;
    Stream& stream = found->second;
    // An abort that overtakes its ADD does nothing.
    if (!stream.sent || stream.ended) continue;
    if (stream.refused) continue;  // its error record is on the way
    stream.ended = true;
    ++coverage_.num_aborts;
  }
}

// A client aborts between the halves of a step: nothing more may reach it.
void Simulation::AbortWhileExecuting() {
  const RequestId& id = SomeId();
  if (engine_->scheduler().Find(id) == nullptr) return;
  const EngineEvent& event = arrived_.emplace_back(wire::AbortRequest{id});
  engine_->HandleAborts(event);
  scenario_.streams.at(id).ended = true;
  ++coverage_.num_aborts;
}

void Simulation::CallSomething() {
  switch (random_.Between(0, 5)) {
    case 0:
    case 1:
      Call("reset_prefix_cache", wire::PackedArray({wire::PackedBool(random_.Chance(0.5))}));
      ++coverage_.num_resets;
      break;
    case 2:
      Pause();
      break;
    case 3:
      Call(scenario_.limits.images ? "reset_encoder_cache" : "get_supported_tasks", {});
      break;
    case 4:
      Call("fly_to_the_moon", {});
      break;
    default:
      LoseClient(1);
  }
}

void Simulation::Pause() {
  const char* modes[] = {"abort", "wait", "keep"};
  const int32_t mode = random_.Between(0, 2);
  if (mode == 0) {
    for (auto& [id, stream] : scenario_.streams) stream.may_abort |= stream.sent && !stream.ended;
  }
  Call("pause_scheduler",
       wire::PackedArray({wire::PackedString(modes[mode]), wire::PackedBool(random_.Chance(0.5))}));
  is_paused_ = true;
  ++coverage_.num_pauses;
}

void Simulation::Resume() {
  Call("resume_scheduler", {});
  is_paused_ = false;
}

void Simulation::Call(std::string method, wire::RawValue args) {
  engine_->Handle(
      wire::UtilityRequest{0, frontends_.BeginCall(), std::move(method), std::move(args)});
}

void Simulation::LoseClient(int32_t client_index) {
  engine_->Handle(wire::ClientLost{client_index});
  for (auto& [id, stream] : scenario_.streams) {
    if (stream.request.client_index == client_index && stream.sent) stream.ended = true;
  }
}

const RequestId& Simulation::SomeId() {
  const auto last = static_cast<int32_t>(scenario_.order.size()) - 1;
  return scenario_.order[static_cast<size_t>(random_.Between(0, last))];
}

}  // namespace tandem
