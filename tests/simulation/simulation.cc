#include "tests/simulation/simulation.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>

#include "engine_core/executor/kv_cache_size.h"
#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

constexpr TokenId kEos = 2;

Status Wrong(const RequestId& id, const std::string& what) {
  return InternalError("client of " + id + ": " + what);
}

// Whether the tail is min_count times the same block, compared block by block.
bool Repeats(const std::vector<TokenId>& answer, const wire::RepetitionDetection& rule) {
  if (rule.min_count < 2) return false;
  for (int32_t size = std::max(1, rule.min_pattern_size); size <= rule.max_pattern_size; ++size) {
    if (static_cast<size_t>(size * rule.min_count) > answer.size()) continue;
    const std::vector<TokenId> last(answer.end() - size, answer.end());
    int32_t count = 1;
    while (count < rule.min_count &&
           std::equal(last.begin(), last.end(), answer.end() - (count + 1) * size)) {
      ++count;
    }
    if (count == rule.min_count) return true;
  }
  return false;
}

// One run of four has a drafter; some of these have a window, some have something outside.
bool HasDrafter(uint64_t seed) { return seed % 8 == 6 || seed % 16 == 12 || seed % 16 == 15; }

}  // namespace

Simulation::Simulation(uint64_t seed) : random_(seed) {
  DrawConfig();
  if (seed % 4 == 3) DrawWindow();
  const int32_t num_documents = Between(1, 4);
  for (int32_t i = 0; i < num_documents; ++i) {
    documents_.push_back(DrawPrompt(limits_.max_model_len - 2));
  }
  const int32_t num_requests = Between(1, 30);
  for (int32_t i = 0; i < num_requests; ++i) DrawStream();
  if (seed % 4 == 0) DrawOutside(seed);
  if (HasDrafter(seed)) DrawDrafter(seed);
  StartEngine();
}

Status Simulation::Run() {
  while (next_ < order_.size() || !grammars_.empty() || engine_->HasWork()) {
    RETURN_IF_ERROR(Act());
    if (--steps_left_ < 0) return InternalError("no end in sight\n" + engine_->DebugString());
    const Status stepped = StepOnce();
    if (stepped.code() == StatusCode::kUnavailable) {
      RETURN_IF_ERROR(Restart());
    } else {
      RETURN_IF_ERROR(stepped);
    }
  }
  return CheckEnd();
}

std::string Simulation::Describe() const {
  const SchedulerConfig& s = options_.scheduler;
  std::ostringstream text;
  text << "blocks " << limits_.num_blocks << " x " << limits_.block_size << ", seqs "
       << limits_.max_num_seqs << ", batch " << limits_.max_num_batched_tokens << ", length "
       << limits_.max_model_len << ", "
       << (s.policy == SchedulingPolicy::kFcfs ? "fcfs" : "priority") << ", chunked "
       << s.enable_chunked_prefill << ", threshold " << s.long_prefill_token_threshold << "/"
       << s.long_prefill_token_threshold_adaptive << ", reserve " << s.reserve_full_isl
       << ", interval " << s.prefill_schedule_interval << ", caching "
       << options_.kv_cache.enable_prefix_caching << ", async " << options_.async_scheduling
       << ", watermark " << options_.kv_cache.watermark << ", window " << limits_.sliding_window
       << ", connector " << connector_seed_.has_value() << " recomputes "
       << (s.kv_load_failure_policy == KvLoadFailurePolicy::kRecompute) << ", adapters "
       << s.max_loras << ", drafts " << limits_.drafts.num_speculative_tokens << " ahead "
       << limits_.drafts.num_lookahead_tokens << " slots " << limits_.drafts.num_input_slots
       << " padded " << limits_.drafts.pads_new_requests << ", requests " << order_.size();
  return text.str();
}

// ---- drawing ----

void Simulation::DrawConfig() {
  limits_.block_size = 1 << Between(0, 3);
  limits_.max_model_len = Between(4, 64);
  const int32_t min_blocks = (limits_.max_model_len + limits_.block_size - 1) / limits_.block_size;
  limits_.num_blocks = 1 + min_blocks + (Chance(0.7) ? Between(0, min_blocks) : Between(0, 200));
  limits_.max_num_seqs = Between(1, 10);
  limits_.max_num_batched_tokens = Chance(0.5) ? Between(1, 16) : Between(16, 200);
  limits_.vocab_size = Between(8, 60);

  SchedulerConfig& scheduler = options_.scheduler;
  scheduler.policy = Chance(0.6) ? SchedulingPolicy::kFcfs : SchedulingPolicy::kPriority;
  scheduler.max_num_active_seqs = Chance(0.2) ? Between(1, limits_.max_num_seqs) : 0;
  if (Chance(0.2)) {
    scheduler.enable_chunked_prefill = false;
    limits_.max_num_batched_tokens =
        std::max(limits_.max_num_batched_tokens, limits_.max_model_len);
  } else if (Chance(0.2)) {
    scheduler.max_num_scheduled_tokens = Between(1, limits_.max_num_batched_tokens);
  }
  if (Chance(0.2)) scheduler.long_prefill_token_threshold = Between(1, 20);
  scheduler.long_prefill_token_threshold_adaptive = Chance(0.5);
  scheduler.reserve_full_isl = Chance(0.7);
  if (Chance(0.2)) scheduler.prefill_schedule_interval = Between(2, 5);
  options_.kv_cache.enable_prefix_caching = Chance(0.85);
  if (Chance(0.15)) options_.kv_cache.watermark = 0.05 * Between(1, 8);
  options_.async_scheduling = Chance(0.5);
  options_.kv_cache.enable_events = options_.kv_cache.enable_prefix_caching && Chance(0.3);
  options_.shutdown_timeout_s = Chance(0.5) ? 0 : 0.5;

  arrival_chance_ = Chance(0.5) ? 0.9 : 0.2;
  abort_chance_ = Chance(0.4) ? 0.1 : 0;
  call_chance_ = Chance(0.3) ? 0.1 : 0;
  lossy_ = Chance(0.15);
}

// A window that every layer has, in a cache that holds little more than one request needs.
void Simulation::DrawWindow() {
  limits_.sliding_window = Between(2, 1 + limits_.max_model_len);
  const int32_t num_held = MaxHeldBlocks(CacheWithLimits({}, limits_));
  if (Chance(0.8)) limits_.num_blocks = 1 + num_held + Between(0, num_held);
}

// What requests wait for outside the engine: KV from elsewhere, grammars, adapters' turns. Drawn
// apart, so that all else is the same with and without.
void Simulation::DrawOutside(uint64_t seed) {
  std::mt19937_64 draw(~seed);
  const auto one_in = [&](uint64_t n) { return draw() % n == 0; };
  if (!one_in(4)) connector_seed_ = draw();
  if (one_in(2)) options_.scheduler.kv_load_failure_policy = KvLoadFailurePolicy::kRecompute;
  if (one_in(2)) options_.scheduler.max_loras = static_cast<int32_t>(1 + draw() % 3);
  const bool with_grammars = one_in(2);
  for (auto& [id, stream] : streams_) {
    if (stream.refused) continue;
    if (options_.scheduler.max_loras > 0 && !one_in(3)) {
      stream.needs.adapter_id = static_cast<AdapterId>(1 + draw() % 5);
      stream.answer.clear();
      SolveStream(&stream);
      if (stream.fails_after) {
        stream.fails_after = std::min(*stream.fails_after, stream.answer.size() - 1);
      }
    }
    if (!with_grammars || !one_in(2)) continue;
    stream.needs.grammar = true;
    stream.grammar_fails = one_in(5);
  }
}

// Drawn apart for the same reason.
void Simulation::DrawDrafter(uint64_t seed) {
  std::mt19937_64 draw(seed * 31);
  const auto up_to = [&](int32_t high) {
    return static_cast<int32_t>(draw() % static_cast<uint64_t>(high + 1));
  };
  drafter_seed_ = draw();
  DraftConfig& drafts = limits_.drafts;
  drafts.num_speculative_tokens = 1 + up_to(4);
  drafts.num_lookahead_tokens = up_to(1) * drafts.num_speculative_tokens;
  drafts.num_input_slots = up_to(1) * up_to(2);
  drafts.pads_new_requests = up_to(1) == 1;
  limits_.max_num_batched_tokens += drafts.num_input_slots;
  // What may be in flight behind a window needs room.
  const int32_t num_held = MaxHeldBlocks(CacheWithLimits({}, limits_));
  limits_.num_blocks = std::max(limits_.num_blocks, 1 + num_held);
}

std::vector<TokenId> Simulation::DrawPrompt(int32_t max_tokens) {
  std::vector<TokenId> prompt;
  if (!documents_.empty() && Chance(0.7)) {
    prompt =
        documents_[static_cast<size_t>(Between(0, static_cast<int32_t>(documents_.size()) - 1))];
    prompt.resize(static_cast<size_t>(Between(1, static_cast<int32_t>(prompt.size()))));
  }
  const int32_t room = max_tokens - static_cast<int32_t>(prompt.size());
  const int32_t num_own =
      Between(prompt.empty() ? 1 : 0, std::max(1, Chance(0.5) ? room : room / 4));
  for (int32_t i = 0; i < num_own && static_cast<int32_t>(prompt.size()) < max_tokens; ++i) {
    prompt.push_back(Between(0, limits_.vocab_size - 1));
  }
  return prompt;
}

void Simulation::DrawStream() {
  Stream stream;
  wire::EngineCoreRequest& request = stream.request;
  request.request_id = "r" + std::to_string(order_.size());
  request.client_index = Between(0, 2);
  request.arrival_time = Between(0, 5);
  request.priority = Between(0, 3);
  request.prompt_token_ids = DrawPrompt(limits_.max_model_len - 1);
  if (Chance(0.1)) request.cache_salt = Chance(0.5) ? "a" : "b";
  wire::SamplingParams& params = request.sampling_params;
  params.max_tokens = Chance(0.7) ? Between(1, 12) : Between(1, limits_.max_model_len);
  params.min_tokens = Chance(0.2) ? Between(0, params.max_tokens) : 0;
  if (Chance(0.7)) params.eos_token_id = kEos;
  if (Chance(0.3)) params.stop_token_ids = {Between(0, limits_.vocab_size - 1)};
  if (Chance(0.1)) params.skip_reading_prefix_cache = true;
  if (Chance(0.1)) params.repetition_detection = {Between(1, 3), Between(0, 2), Between(0, 3)};
  if (Chance(0.05)) {
    stream.refused = true;
    switch (Between(0, 2)) {
      case 0:
        request.prompt_token_ids.push_back(limits_.vocab_size);
        break;
      case 1:
        request.prompt_token_ids.assign(static_cast<size_t>(limits_.max_model_len), 1);
        break;
      default:
        params.max_tokens = 0;
    }
  } else {
    SolveStream(&stream);
    if (Chance(0.05)) {
      stream.fails_after =
          static_cast<size_t>(Between(0, static_cast<int32_t>(stream.answer.size()) - 1));
    }
  }
  order_.push_back(request.request_id);
  streams_.emplace(request.request_id, std::move(stream));
  ++coverage_.num_requests;
}

// The answer, one token after the other, without a scheduler and with stop rules of its own.
void Simulation::SolveStream(Stream* stream) const {
  const wire::SamplingParams& params = stream->request.sampling_params;
  uint64_t hash = FirstHash(*stream);
  for (TokenId token : stream->request.prompt_token_ids) hash = ExtendPrefixHash(hash, token);
  std::vector<TokenId>& answer = stream->answer;
  stream->stop_reason = {};
  for (;;) {
    const TokenId token = NextSimToken(hash, limits_.vocab_size);
    hash = ExtendPrefixHash(hash, token);
    answer.push_back(token);
    const size_t num_tokens = stream->request.prompt_token_ids.size() + answer.size();
    if (params.eos_token_id == token) {
      stream->reason = wire::FinishReason::kStop;
      return;
    }
    if (!params.stop_token_ids.empty() && params.stop_token_ids[0] == token) {
      stream->reason = wire::FinishReason::kStop;
      stream->stop_reason = int64_t{token};
      return;
    }
    if (num_tokens == static_cast<size_t>(limits_.max_model_len) ||
        answer.size() == static_cast<size_t>(params.max_tokens)) {
      stream->reason = wire::FinishReason::kLength;
      return;
    }
    if (answer.size() >= static_cast<size_t>(params.min_tokens) && params.repetition_detection &&
        Repeats(answer, *params.repetition_detection)) {
      stream->reason = wire::FinishReason::kRepetition;
      stream->stop_reason = "repetition_detected";
      return;
    }
  }
}

void Simulation::StartEngine() {
  executor_ = std::make_unique<SimExecutor>(limits_);
  executor_->FailRequestsWhere([this](const RequestId& id, std::span<const TokenId> token_ids) {
    const Stream& stream = streams_.at(id);
    return stream.fails_after == token_ids.size() - stream.request.prompt_token_ids.size();
  });
  executor_->BeginPrefixesWith([this](const RequestId& id) { return FirstHash(streams_.at(id)); });
  if (drafter_seed_) executor_->DraftWith((*drafter_seed_)++);
  CountTransfers();
  connector_.reset();
  if (connector_seed_) {
    connector_ = std::make_unique<SimConnector>((*connector_seed_)++, executor_.get());
    executor_->TransferWith([this](KvTransferNews* news) { return connector_->Work(news); });
    executor_->KeepWhere([this](BlockId block) {
      const std::vector<Request*> holding = engine_->scheduler().Holding();
      return std::any_of(holding.begin(), holding.end(), [=](const Request* request) {
        const std::vector<BlockId>& table = request->held.table;
        return std::find(table.begin(), table.end(), block) != table.end();
      });
    });
  }
  options_.kv_connector = connector_.get();
  options_.needs_of = [this](const wire::EngineCoreRequest& request) {
    return streams_.at(request.request_id).needs;
  };
  if (lossy_) executor_->LoseAfter(Between(1, 60));
  auto engine = EngineCore::Create(options_, executor_.get(), &clock_);
  CHECK(engine.ok()) << engine.status().ToString();
  engine_ = std::move(*engine);
  kv_events_ = std::make_unique<KvEventShadow>(limits_.block_size);
  // Each step computes a token of some request; preemptions may throw away what one has, but the
  // first in line always gets further.
  int64_t num_tokens = 0;
  for (const auto& [id, stream] : streams_) {
    num_tokens += static_cast<int64_t>(stream.request.prompt_token_ids.size()) +
                  stream.request.sampling_params.max_tokens;
  }
  steps_left_ = 1000 + 20 * num_tokens;
  if (connector_) steps_left_ += 100 * static_cast<int64_t>(streams_.size());
}

// ---- what the world does between two steps ----

Status Simulation::Act() {
  clock_.Advance(0.001 * Between(0, 20));
  for (wire::EngineInput& input : arrived_) engine_->Handle(std::move(input));
  arrived_.clear();
  while (next_ < order_.size() && (Chance(arrival_chance_) || !engine_->HasWork())) {
    Send(&streams_.at(order_[next_++]));
  }
  EndSomeGrammarWaits();
  if (Chance(abort_chance_)) AbortSome();
  if (Chance(0.02)) SendAgain();
  if (Chance(call_chance_)) {
    switch (Between(0, 5)) {
      case 0:
      case 1:
        Call("reset_prefix_cache", wire::PackedArray({wire::PackedBool(Chance(0.5))}));
        ++coverage_.num_resets;
        break;
      case 2: {
        const char* modes[] = {"abort", "wait", "keep"};
        const int32_t mode = Between(0, 2);
        if (mode == 0) {
          for (auto& [id, stream] : streams_) stream.may_abort |= stream.sent && !stream.ended;
        }
        Call("pause_scheduler",
             wire::PackedArray({wire::PackedString(modes[mode]), wire::PackedBool(Chance(0.5))}));
        paused_ = true;
        ++coverage_.num_pauses;
        break;
      }
      case 3:
        Call("get_supported_tasks", {});
        break;
      case 4:
        Call("fly_to_the_moon", {});
        break;
      default:
        engine_->Handle(wire::ClientLost{1});
        for (auto& [id, stream] : streams_) {
          if (stream.request.client_index == 1 && stream.sent) stream.ended = true;
        }
    }
  } else if (paused_ && (Chance(0.2) || !engine_->HasWork())) {
    Call("resume_scheduler", {});
    paused_ = false;
  }
  return OkStatus();
}

void Simulation::Send(Stream* stream) {
  wire::EngineCoreRequest request = stream->request;
  // What a frontend sends again after a restart.
  request.prompt_token_ids.insert(request.prompt_token_ids.end(), stream->emitted.begin(),
                                  stream->emitted.end());
  stream->sent = true;
  stream->has_record = false;
  stream->may_abort = false;
  stream->sent_while_paused = paused_;
  engine_->Handle(std::move(request));
  const RequestId& id = stream->request.request_id;
  const Request* added = engine_->scheduler().Find(id);
  if (added == nullptr || !stream->needs.grammar) return;
  grammars_.push_back({id, added->order,
                       stream->grammar_fails ? InvalidArgumentError("no such rule") : OkStatus()});
  ++coverage_.num_grammars;
}

// They end in any order, some of them after their request.
void Simulation::EndSomeGrammarWaits() {
  for (size_t i = grammars_.size(); i-- > 0;) {
    if (!Chance(0.3)) continue;
    engine_->Handle(grammars_[i]);
    grammars_.erase(grammars_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void Simulation::AbortSome() {
  wire::AbortRequest ids;
  const int32_t count = Between(1, 3);
  for (int32_t i = 0; i < count; ++i) {
    ids.push_back(order_[static_cast<size_t>(Between(0, static_cast<int32_t>(order_.size()) - 1))]);
  }
  if (Chance(0.2)) ids.push_back("nobody");
  engine_->Handle(ids);
  for (const RequestId& id : ids) {
    const auto stream = streams_.find(id);
    // An abort that overtakes its ADD does nothing.
    if (stream == streams_.end() || !stream->second.sent || stream->second.ended) continue;
    if (stream->second.refused) continue;  // its error record is on the way
    stream->second.ended = true;
    ++coverage_.num_aborts;
  }
}

// A client gives up between the halves of a step: nothing more may reach it.
void Simulation::AbortWhileExecuting() {
  const RequestId& id =
      order_[static_cast<size_t>(Between(0, static_cast<int32_t>(order_.size()) - 1))];
  if (engine_->scheduler().Find(id) == nullptr) return;
  const wire::EngineInput& input = arrived_.emplace_back(wire::AbortRequest{id});
  engine_->HandleAborts(input);
  streams_.at(id).ended = true;
  ++coverage_.num_aborts;
}

// The same ADD a second time, which must change nothing.
void Simulation::SendAgain() {
  const RequestId& id =
      order_[static_cast<size_t>(Between(0, static_cast<int32_t>(order_.size()) - 1))];
  if (engine_->scheduler().Find(id) != nullptr) engine_->Handle(streams_.at(id).request);
}

void Simulation::Call(std::string method, wire::RawValue args) {
  calls_[next_call_id_] = false;
  engine_->Handle(wire::UtilityRequest{0, next_call_id_++, std::move(method), std::move(args)});
}

Status Simulation::StepOnce() {
  const int64_t num_tokens_before = executor_->num_tokens();
  const bool runnable = engine_->scheduler().HasRunnable();
  const Status status = engine_->BeginStep();
  if (status.ok()) {
    if (Chance(abort_chance_)) AbortWhileExecuting();
    engine_->EndStep();
  }
  ++coverage_.num_steps;
  std::vector<ClientMessage> messages;
  engine_->TakeMessages(&messages);
  for (ClientMessage& message : messages) {
    RETURN_IF_ERROR(Hear(message));
    engine_->Recycle(std::move(message.outputs));
  }
  RETURN_IF_ERROR(status);
  // Work that yields no token may happen (a request preempts itself), but not for long.
  const bool may_wait = connector_ && connector_->TakeWasBusy();
  const bool idle = runnable && !may_wait && executor_->num_tokens() == num_tokens_before;
  num_idle_steps_ = idle ? num_idle_steps_ + 1 : 0;
  if (num_idle_steps_ > 3) return InternalError("steps without tokens\n" + engine_->DebugString());
  RETURN_IF_ERROR(CheckTransfers());
  RETURN_IF_ERROR(CheckAdapters());
  RETURN_IF_ERROR(CheckBlocks());
  RETURN_IF_ERROR(CheckFreeOrder());
  RETURN_IF_ERROR(CheckKvEvents());
  return CheckQueues();
}

// The engine's process died: a new one gets every stream again, with what it has emitted.
Status Simulation::Restart() {
  ++coverage_.num_restarts;
  lossy_ = Chance(0.5);
  calls_.clear();
  arrived_.clear();
  grammars_.clear();
  last_held_.clear();
  paused_ = false;
  StartEngine();
  for (const RequestId& id : order_) {
    Stream& stream = streams_.at(id);
    if (stream.ended) stream.num_finished_ids = 1;  // or the dead engine kept it to itself
    if (!stream.sent || stream.ended) continue;
    // The outputs count anew: a resent request has fewer left.
    stream.num_finished_ids = 0;
    if (stream.refused) {
      Send(&stream);
      continue;
    }
    stream.request.sampling_params.repetition_detection.reset();
    stream.request.sampling_params.min_tokens = 0;
    const auto num_emitted = static_cast<int32_t>(stream.emitted.size());
    stream.request.prompt_token_ids.insert(stream.request.prompt_token_ids.end(),
                                           stream.emitted.begin(), stream.emitted.end());
    stream.request.sampling_params.max_tokens -= num_emitted;
    if (stream.fails_after) *stream.fails_after -= static_cast<size_t>(num_emitted);
    stream.emitted.clear();
    stream.answer.clear();
    SolveStream(&stream);
    Send(&stream);
  }
  return OkStatus();
}

// ---- what the frontends hear ----

Status Simulation::Hear(const ClientMessage& message) {
  const wire::EngineCoreOutputs& outputs = message.outputs;
  if (outputs.is_empty()) return InternalError("an empty message");
  if (outputs.timestamp < last_timestamp_) return InternalError("time runs backwards");
  last_timestamp_ = outputs.timestamp;
  if (outputs.utility_output) {
    if (!outputs.outputs.empty()) return InternalError("a reply together with outputs");
    const auto call = calls_.find(static_cast<uint64_t>(outputs.utility_output->call_id));
    if (call == calls_.end() || call->second) return InternalError("an answer nobody asked for");
    call->second = true;
  }
  for (const wire::EngineCoreOutput& output : outputs.outputs) {
    RETURN_IF_ERROR(HearOutput(output));
    if (streams_.at(output.request_id).request.client_index != message.client_index) {
      return Wrong(output.request_id, "answered to another client");
    }
  }
  for (const RequestId& id : outputs.finished_requests) RETURN_IF_ERROR(HearFinishedId(id));
  if (outputs.scheduler_stats) RETURN_IF_ERROR(HearStats(*outputs.scheduler_stats));
  return OkStatus();
}

Status Simulation::HearOutput(const wire::EngineCoreOutput& output) {
  const auto found = streams_.find(output.request_id);
  if (found == streams_.end()) return Wrong(output.request_id, "is unknown");
  Stream& stream = found->second;
  // A refusal that was on its way when its client gave up.
  const bool refusal = output.finish_reason == wire::FinishReason::kError &&
                       (stream.refused || stream.grammar_fails || stream.sent_while_paused);
  if (stream.ended && refusal) return OkStatus();
  if (!stream.sent || stream.ended) return Wrong(output.request_id, "hears after the end");
  RETURN_IF_ERROR(HearTokens(output, &stream));
  stream.emitted.insert(stream.emitted.end(), output.new_token_ids.begin(),
                        output.new_token_ids.end());
  for (const wire::EngineCoreEvent& event : output.events) {
    if (event.type == wire::EventType::kPreempted) ++coverage_.num_preemptions;
  }
  if (output.finish_reason) {
    RETURN_IF_ERROR(HearFinish(output, stream));
    stream.ended = true;
    if (output.finish_reason == wire::FinishReason::kError) ++coverage_.num_request_failures;
  } else if (output.new_token_ids.empty()) {
    return Wrong(output.request_id, "hears a record without tokens or end");
  } else if (stream.emitted.size() >= stream.answer.size()) {
    return Wrong(output.request_id, "should have ended");
  }
  return OkStatus();
}

Status Simulation::HearTokens(const wire::EngineCoreOutput& output, Stream* stream) const {
  for (size_t i = 0; i < output.new_token_ids.size(); ++i) {
    const size_t position = stream->emitted.size() + i;
    if (stream->refused || position >= stream->answer.size() ||
        output.new_token_ids[i] != stream->answer[position]) {
      return Wrong(output.request_id, "wrong token at output " + std::to_string(position));
    }
  }
  if (output.new_token_ids.empty()) return OkStatus();
  const bool first = !std::exchange(stream->has_record, true);
  if (output.prefill_stats.has_value() != first) return Wrong(output.request_id, "prefill_stats");
  double last = 0;
  for (const wire::EngineCoreEvent& event : output.events) {
    if (event.timestamp < last || event.timestamp > last_timestamp_) {
      return Wrong(output.request_id, "event out of order");
    }
    last = event.timestamp;
  }
  if (!first) return OkStatus();
  if (output.events.size() < 2 || output.events[0].type != wire::EventType::kQueued ||
      output.events[1].type != wire::EventType::kScheduled) {
    return Wrong(output.request_id, "does not begin with QUEUED, SCHEDULED");
  }
  const wire::PrefillStats& stats = *output.prefill_stats;
  if (stats.num_cached_tokens + stats.num_computed_tokens != stats.num_prompt_tokens) {
    return Wrong(output.request_id, "prefill_stats do not add up");
  }
  return OkStatus();
}

Status Simulation::HearFinish(const wire::EngineCoreOutput& output, const Stream& stream) const {
  switch (*output.finish_reason) {
    case wire::FinishReason::kAbort:
      return stream.may_abort ? OkStatus() : Wrong(output.request_id, "aborted by nobody");
    case wire::FinishReason::kError:
      if (!output.error) return Wrong(output.request_id, "an error without words");
      if (output.error->code == wire::kErrorEnginePaused) {
        return stream.sent_while_paused ? OkStatus()
                                        : Wrong(output.request_id, "refused without a pause");
      }
      if (stream.grammar_fails && stream.emitted.empty() &&
          output.error->message == "no such rule") {
        return output.error->code == wire::kErrorValidation
                   ? OkStatus()
                   : Wrong(output.request_id, "error code " + output.error->code);
      }
      if (connector_ && connector_->HasFailed(output.request_id) &&
          options_.scheduler.kv_load_failure_policy == KvLoadFailurePolicy::kFail) {
        return OkStatus();
      }
      if (stream.refused) {
        return output.error->code == wire::kErrorValidation
                   ? OkStatus()
                   : Wrong(output.request_id, "error code " + output.error->code);
      }
      return stream.fails_after == stream.emitted.size()
                 ? OkStatus()
                 : Wrong(output.request_id, "failed: " + output.error->message);
    default:
      if (stream.emitted.size() != stream.answer.size() || *output.finish_reason != stream.reason ||
          output.stop_reason != stream.stop_reason) {
        return Wrong(output.request_id, "wrong end");
      }
      return OkStatus();
  }
}

Status Simulation::HearFinishedId(const RequestId& id) {
  const auto stream = streams_.find(id);
  if (stream == streams_.end() || !stream->second.ended) return Wrong(id, "finished too early");
  if (++stream->second.num_finished_ids > 1) return Wrong(id, "finished twice");
  return OkStatus();
}

Status Simulation::HearStats(const wire::SchedulerStats& stats) {
  const Scheduler& scheduler = engine_->scheduler();
  const wire::PrefixCacheStats& prefix = stats.prefix_cache_stats;
  coverage_.num_hit_tokens += prefix.hits + prefix.preempted_hits;
  if (stats.num_running_reqs != static_cast<int64_t>(scheduler.num_running()) ||
      stats.num_waiting_reqs != static_cast<int64_t>(scheduler.num_waiting()) ||
      prefix.hits > prefix.queries || prefix.preempted_hits > prefix.preempted_queries) {
    return InternalError("wrong statistics");
  }
  return stats.spec_decoding_stats ? HearDrafts(*stats.spec_decoding_stats) : OkStatus();
}

Status Simulation::HearDrafts(const wire::SpecDecodingStats& stats) {
  coverage_.num_drafts += stats.num_draft_tokens;
  coverage_.num_accepted_drafts += stats.num_accepted_tokens;
  const auto sum = [](const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  };
  if (stats.num_spec_tokens != limits_.drafts.num_speculative_tokens || stats.num_drafts < 1 ||
      stats.num_draft_tokens < stats.num_drafts ||
      stats.num_draft_tokens_per_pos[0] != stats.num_drafts ||
      sum(stats.num_draft_tokens_per_pos) != stats.num_draft_tokens ||
      sum(stats.num_accepted_tokens_per_pos) != stats.num_accepted_tokens ||
      stats.num_accepted_tokens > stats.num_draft_tokens) {
    return InternalError("wrong statistics of drafts");
  }
  return OkStatus();
}

// ---- invariants ----

void Simulation::CountTransfers() {
  if (!connector_) return;
  coverage_.num_kv_loads += connector_->num_loads();
  coverage_.num_kv_load_failures += connector_->num_failures();
  coverage_.num_kept_tables += connector_->num_kept();
}

// Who is being saved keeps its blocks; who is being loaded waits with them, or runs.
Status Simulation::CheckTransfers() const {
  if (!connector_) return OkStatus();
  const Scheduler& scheduler = engine_->scheduler();
  for (const RequestId& id : connector_->Saving()) {
    const Request* request = scheduler.Find(id);
    if (request == nullptr || request->status != wire::RequestStatus::kRunning) {
      return Wrong(id, "has lost its blocks while they were saved");
    }
  }
  for (const Request* request : scheduler.Holding()) {
    if (!request->holds_blocks || request->held.table.empty()) {
      return Wrong(request->id(), "waits among those with blocks, without any");
    }
  }
  for (const Request* request : scheduler.Waiting()) {
    if (request->holds_blocks || !request->held.table.empty() || request->loads_kv) {
      return Wrong(request->id(), "waits with blocks");
    }
  }
  return OkStatus();
}

// Never more adapters in the batch than fit, and the count is true.
Status Simulation::CheckAdapters() {
  const AdapterSlots& adapters = engine_->scheduler().adapters();
  std::set<AdapterId> used;
  for (const Request* request : engine_->scheduler().running()) {
    if (request->needs.adapter_id != 0) used.insert(request->needs.adapter_id);
  }
  if (used.size() != adapters.num_adapters()) return InternalError("adapters are miscounted");
  if (used.size() > adapters.max_adapters()) return InternalError("too many adapters");
  if (!used.empty() && used.size() == adapters.max_adapters()) ++coverage_.num_adapter_steps;
  return OkStatus();
}

// Free and held blocks are all blocks, each is held as often as tables name it, none is both.
Status Simulation::CheckBlocks() {
  const KvCacheManager& kv_cache = engine_->kv_cache();
  const BlockPool& pool = kv_cache.pool();
  const Scheduler& scheduler = engine_->scheduler();
  std::map<BlockId, int32_t> holders;
  std::set<RequestSlot> slots;
  const auto count = [&](const RequestId& id, std::span<const BlockId> table) {
    std::set<BlockId> own;
    for (BlockId block : table) {
      if (block == kNullBlock) continue;
      if (!own.insert(block).second) return Wrong(id, "holds a block twice");
      ++holders[block];
    }
    return OkStatus();
  };
  for (const Request* request : scheduler.running()) {
    if (!slots.insert(request->slot).second) return InternalError("a slot has two requests");
    RETURN_IF_ERROR(count(request->id(), kv_cache.BlockTable(request->slot)));
  }
  for (const Request* request : scheduler.Holding()) {
    RETURN_IF_ERROR(count(request->id(), request->held.table));
  }
  for (const KvTransfers::Kept& kept : scheduler.transfers().kept()) {
    RETURN_IF_ERROR(count(kept.id, kept.blocks.table));
  }
  const std::vector<BlockId> free_list = pool.FreeList();
  const std::set<BlockId> free(free_list.begin(), free_list.end());
  if (free.size() != free_list.size()) return InternalError("a block is free twice");
  if (static_cast<int32_t>(free.size()) != pool.num_free()) return InternalError("num_free");
  if (static_cast<int32_t>(free.size() + holders.size()) != pool.num_blocks() - 1) {
    return InternalError("blocks are lost: " + std::to_string(free.size()) + " free, " +
                         std::to_string(holders.size()) + " held");
  }
  for (const auto& [block, num_holders] : holders) {
    if (free.contains(block)) return InternalError("a held block is on the free list");
    if (pool.num_holders(block) != num_holders)
      return InternalError("a block's holders are miscounted");
    last_held_[block] = coverage_.num_steps;
  }
  // What is free now and was held at the end of the step before, or came and went since, has been
  // freed in this step.
  for (BlockId block : executor_->TakeUsedBlocks()) {
    if (block == kNullBlock) continue;
    int64_t& last_held = last_held_.try_emplace(block, -1).first->second;
    last_held = std::max(last_held, coverage_.num_steps - 1);
  }
  return OkStatus();
}

// Blocks without content are taken first, then the least recently held content is lost first.
Status Simulation::CheckFreeOrder() {
  const BlockPool& pool = engine_->kv_cache().pool();
  int64_t last_held = -1;
  bool cached = false;
  for (BlockId block : pool.FreeList()) {
    if (!pool.is_registered(block)) {
      if (cached)
        return InternalError("cached content would be lost before an empty block is used");
      continue;
    }
    cached = true;
    if (last_held_[block] < last_held) return InternalError("content is not lost in LRU order");
    last_held = last_held_[block];
  }
  return OkStatus();
}

// Whoever follows the events knows what the cache knows.
Status Simulation::CheckKvEvents() {
  if (!options_.kv_cache.enable_events) return OkStatus();
  RETURN_IF_ERROR(kv_events_->Apply(engine_->TakeKvEvents()));
  const BlockPool& pool = engine_->kv_cache().pool();
  if (static_cast<int32_t>(kv_events_->num_hashes()) != pool.num_cached_hashes()) {
    return InternalError("KV events tell of " + std::to_string(kv_events_->num_hashes()) +
                         " hashes, the cache holds " + std::to_string(pool.num_cached_hashes()));
  }
  return OkStatus();
}

// Each request is in one queue; first come, first served, but for those that waited for something
// outside.
Status Simulation::CheckQueues() const {
  const Scheduler& scheduler = engine_->scheduler();
  if (scheduler.num_running() + scheduler.num_waiting() != scheduler.num_requests()) {
    return InternalError("a request is in no queue");
  }
  if (options_.scheduler.policy != SchedulingPolicy::kFcfs) return OkStatus();
  int64_t last = -1;
  for (const auto& queue : {scheduler.running(), scheduler.Waiting()}) {
    for (const Request* request : queue) {
      if (request->needs.grammar || request->needs.adapter_id != 0 ||
          (connector_ && connector_->HasTouched(request->id()))) {
        continue;
      }
      if (request->order < last) return Wrong(request->id(), "has been overtaken");
      last = request->order;
    }
  }
  return OkStatus();
}

Status Simulation::CheckEnd() {
  if (paused_) {
    Call("resume_scheduler", {});
    paused_ = false;
    while (engine_->HasWork()) {
      if (--steps_left_ < 0) return InternalError("no end in sight\n" + engine_->DebugString());
      const Status stepped = StepOnce();
      if (stepped.code() == StatusCode::kUnavailable) return OkStatus();
      RETURN_IF_ERROR(stepped);
    }
  }
  for (const auto& [id, stream] : streams_) {
    if (!stream.ended) return Wrong(id, "never ended");
    if (stream.num_finished_ids != 1) return Wrong(id, "was not among the finished ids");
  }
  for (const auto& [id, answered] : calls_) {
    if (!answered) return InternalError("call " + std::to_string(id) + " was not answered");
  }
  CountTransfers();
  if (engine_->scheduler().num_requests() != 0) return InternalError("requests are left over");
  if (engine_->kv_cache().pool().Usage() != 0) return InternalError("blocks are left over");
  for (int32_t i = 0; i < limits_.max_num_seqs; ++i) {
    if (executor_->IsSlotInUse(RequestSlot{i})) return InternalError("a slot is left over");
  }
  if (!engine_->ResetPrefixCache(false)) return InternalError("reset refused on an idle engine");
  if (engine_->kv_cache().pool().num_cached_hashes() != 0) return InternalError("hashes are left");
  return OkStatus();
}

uint64_t Simulation::FirstHash(const Stream& stream) {
  return static_cast<uint64_t>(stream.needs.adapter_id);
}

bool Simulation::Chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

int32_t Simulation::Between(int32_t low, int32_t high) {
  if (high <= low) return low;
  return low + static_cast<int32_t>(random_() % static_cast<uint64_t>(high - low + 1));
}

}  // namespace tandem
