// EngineClient: which engine gets a request, and what it is sent.

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/random.h"
#include "common/strings.h"
#include "frontend/engine_client/engine_client.h"
#include "frontend/engine_client/prefill_request.h"
#include "proto_msgpack/choices.h"
#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

// With it an engine of a group that stands still starts a wave by itself (proto_msgpack/
// engine_group.h): older ones wait for the frontend if it is their next one.
constexpr int32_t kAnEarlierWave = -1;

// Whether the first one's message can stand for all.
bool AreFirstChoices(const std::vector<wire::EngineCoreRequest*>& choices) {
  const std::optional<std::string> shared = wire::SharedId(choices.front()->request_id);
  if (!shared) return false;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i]->request_id != wire::ChoiceId(*shared, static_cast<int64_t>(i))) return false;
  }
  return true;
}

}  // namespace

// ---- A new request ----

StatusOr<int> EngineClient::Submit(wire::EngineCoreRequest request, OutputSink* sink) {
  Choices only;
  only.push_back(std::move(request));
  return SubmitChoices(std::move(only), {sink});
}

StatusOr<int> EngineClient::SubmitChoices(Choices choices, const std::vector<OutputSink*>& sinks) {
  CHECK_EQ(choices.size(), sinks.size());
  RETURN_IF_ERROR(CheckAdmits(choices));
  const Prefix prefix = HashPrefix(choices.front());
  const std::optional<int> rank = choices.front().data_parallel_rank;
  ASSIGN_OR_RETURN(const int engine_index, ChooseEngine(rank, prefix));
  const bool is_ours = health_.is_ours(engine_index);
  FillIn(&choices, is_ours);
  if (NeedsPrefill(choices, engine_index, prefix)) {
    const std::optional<int> prefill_engine = FirstPrefillEngine();
    if (prefill_engine) return BeginPrefill(std::move(choices), sinks, *prefill_engine);
  }
  std::vector<wire::EngineCoreRequest*> pointers;
  for (wire::EngineCoreRequest& choice : choices) {
    balancer_.OnSubmit(engine_index, rank);
    pointers.push_back(&choice);
  }
  SendChoices(pointers, engine_index);
  NotePrefix(engine_index, prefix);
  for (size_t i = 0; i < choices.size(); ++i) {
    running_.Add(std::move(choices[i]), engine_index, is_ours, sinks[i]);
  }
  WatchEngines();
  return engine_index;
}

void EngineClient::SendRefused(wire::RawValue extra_args) {
  const StatusOr<int> engine_index = ChooseEngine({}, {});
  if (!engine_index.ok()) return;
  wire::EngineCoreRequest request;
  request.request_id = "refused-" + RandomHex(16);
  request.prompt_token_ids = {0};
  request.client_index = options_.client_index;
  request.sampling_params.extra_args = std::move(extra_args);
  request.abort_immediately = true;
  SendAdd(request, *engine_index);
}

Status EngineClient::CheckAdmits(const Choices& choices) const {
  RETURN_IF_ERROR(ended_);
  RETURN_IF_ERROR(held_);
  if (running_.size() + choices.size() > options_.max_inflight) {
    return ResourceExhaustedError("too many requests: " + std::to_string(running_.size()) +
                                  " are running or waiting, the limit is " +
                                  std::to_string(options_.max_inflight));
  }
  for (const wire::EngineCoreRequest& choice : choices) {
    if (running_.contains(choice.request_id)) {
      return AlreadyExistsError("request id " + choice.request_id + " is in use");
    }
  }
  return OkStatus();
}

void EngineClient::FillIn(Choices* choices, bool is_ours) {
  const bool draws_seeds = is_ours && !choices->front().sampling_params.seed;
  const auto first_seed =
      draws_seeds ? static_cast<int64_t>(MixBits(next_seed_++) >> 1) : int64_t{0};
  for (size_t i = 0; i < choices->size(); ++i) {
    wire::EngineCoreRequest& choice = (*choices)[i];
    choice.client_index = options_.client_index;
    if (!is_ours) {
      choice.own = {};
      choice.current_wave = kAnEarlierWave;
    }
    if (draws_seeds) {
      choice.sampling_params.seed = wire::ChoiceSeed(first_seed, static_cast<int64_t>(i));
    }
  }
}

// An engine that runs whole requests.
StatusOr<int> EngineClient::ChooseEngine(std::optional<int> rank, const Prefix& prefix) {
  EngineBalancer::Wish wish = {.rank = rank};
  if (!prefix.empty()) wish.num_cached = prefixes_.NumCached(prefix);
  StatusOr<int> engine = balancer_.Choose(wish, health_, running_.num_per_engine());
  if (rank || options_.num_prefill_engines == 0) return engine;
  const bool was_missing = std::exchange(is_decode_missing_, !engine.ok());
  if (engine.ok()) {
    if (was_missing) LOG_INFO << "an engine that decodes takes requests again";
    return engine;
  }
  wish.role = EngineRole::kPrefill;
  StatusOr<int> instead = balancer_.Choose(wish, health_, running_.num_per_engine());
  if (!instead.ok()) return engine;
  if (!was_missing) {
    LOG_WARNING << engine.status().message()
                << "; no engine that decodes takes requests: prefill engines run whole ones";
  }
  return instead;
}

// ---- Prompts that another engine computes ----

bool EngineClient::TakesPrompts(int engine_index) const {
  return health_.CheckTakesRequests(engine_index).ok() && health_.is_ours(engine_index);
}

std::optional<int> EngineClient::FirstPrefillEngine() const {
  for (int i = 0; i < options_.num_prefill_engines; ++i) {
    if (TakesPrompts(i)) return i;
  }
  return std::nullopt;
}

StatusOr<int> EngineClient::ChoosePrefillEngine(const wire::EngineCoreRequest& choice,
                                                std::optional<int> failed,
                                                const std::function<bool(int)>& admits) {
  bool one_takes = false, one_is_admitted = false;
  for (int i = 0; i < options_.num_prefill_engines; ++i) {
    if (i == failed || !TakesPrompts(i)) continue;
    one_takes = true;
    one_is_admitted |= admits(i);
  }
  if (!one_takes) return UnavailableError("no other prefill engine takes requests");
  if (!one_is_admitted) return ResourceExhaustedError("all prefill engines hold KV for others");
  EngineBalancer::Wish wish = {.role = EngineRole::kPrefill, .admits = [&](int index) {
                                 return index != failed && TakesPrompts(index) && admits(index);
                               }};
  const Prefix prefix = HashPrefix(choice);
  if (!prefix.empty()) wish.num_cached = prefixes_.NumCached(prefix);
  return balancer_.Choose(wish, health_, running_.num_per_engine());
}

bool EngineClient::NeedsPrefill(const Choices& choices, int engine_index,
                                const Prefix& prefix) const {
  if (options_.num_prefill_engines == 0 || balancer_.is_prefill_engine(engine_index)) return false;
  const wire::EngineCoreRequest& first = choices.front();
  const int64_t num_cached_blocks =
      prefix.empty() ? 0 : prefixes_.NumCached(prefix)[static_cast<size_t>(engine_index)];
  const int64_t num_computed = static_cast<int64_t>(first.prompt_token_ids.size()) -
                               num_cached_blocks * health_.engine_info(engine_index).block_size;
  return num_computed >= options_.prefill_min_tokens && !first.data_parallel_rank &&
         health_.is_ours(engine_index) && CanPrefillElsewhere(first) &&
         running_.HasRoomFor(choices);
}

int EngineClient::BeginPrefill(Choices choices, const std::vector<OutputSink*>& sinks,
                               int engine_index) {
  std::vector<RequestId> ids;
  for (size_t i = 0; i < choices.size(); ++i) {
    ids.push_back(choices[i].request_id);
    running_.Add(std::move(choices[i]), kNoEngine, /*can_resume=*/true, sinks[i]);
  }
  return prefills_.Begin(std::move(ids), engine_index);
}

Prefills::Calls EngineClient::PrefillCalls() {
  return {.choose_engine =
              [this](const wire::EngineCoreRequest& choice, std::optional<int> failed,
                     const std::function<bool(int)>& admits) {
                return ChoosePrefillEngine(choice, failed, admits);
              },
          .send =
              [this](const wire::EngineCoreRequest& prefill, int engine_index) {
                balancer_.OnSubmit(engine_index, std::nullopt);
                SendAdd(prefill, engine_index);
                NotePrefix(engine_index, HashPrefix(prefill));
                WatchEngines();
              },
          .go_on = [this](const std::vector<RequestId>& ids,
                          const wire::RawValue& params) { return GoOn(ids, params); }};
}

KvReaders EngineClient::GoOn(const std::vector<RequestId>& ids, const wire::RawValue& params) {
  std::vector<RunningRequest*> running;
  for (const RequestId& id : ids) {
    if (RunningRequest* const one = running_.Find(id)) running.push_back(one);
  }
  if (running.empty()) return {};
  const Prefix prefix = HashPrefix(running.front()->request);
  const StatusOr<int> engine = ChooseEngine(std::nullopt, prefix);
  if (!engine.ok() || !health_.is_ours(*engine)) {
    const Status why =
        engine.ok() ? UnavailableError("no engine that decodes is Tandem's") : engine.status();
    for (const RequestId& id : ids) {
      if (running_.contains(id)) {
        resumption_.WaitForEngine(id, why, thread_.clock->Monotonic());
      }
    }
    WatchDeadline();
    return {};
  }
  const bool loads = !params.is_nil() && !balancer_.is_prefill_engine(*engine);
  KvReaders readers;
  std::vector<wire::EngineCoreRequest*> choices;
  std::vector<wire::RawValue> extra_args;  // as they are if the request is sent again
  for (RunningRequest* const one : running) {
    wire::RawValue& args = one->request.sampling_params.extra_args;
    extra_args.push_back(args);
    if (loads) {
      args = WithKvTransferParams(args, params);
      readers.engine_index = *engine;
      readers.sent_ids.push_back(one->request.request_id);
    }
    choices.push_back(&one->request);
    balancer_.OnSubmit(*engine, std::nullopt);
    running_.JoinEngine(one, *engine);
  }
  SendChoices(choices, *engine);
  for (size_t i = 0; i < choices.size(); ++i) {
    choices[i]->sampling_params.extra_args = std::move(extra_args[i]);
  }
  NotePrefix(*engine, prefix);
  WatchEngines();
  for (const RequestId& id : ids) {
    if (RunningRequest* const one = running_.Find(id)) one->sink->OnEngineChange(*engine);
  }
  return readers;
}

// ---- After a death ----

Resumption::Calls EngineClient::ResumptionCalls() {
  return {.choose_engine = [this](std::optional<int> rank) { return ChooseEngine(rank, {}); },
          .send =
              [this](const RunningRequest& running, int engine_index) {
                SendAborts(engine_index);  // of what is to leave the engine before this arrives
                balancer_.OnSubmit(engine_index, running.request.data_parallel_rank);
                SendAdd(running.request, engine_index);
                NotePrefix(engine_index, HashPrefix(running.request));
                WatchEngines();
              },
          .report =
              [this](ResumeOutcome outcome) {
                if (on_resume_outcome_) on_resume_outcome_(outcome);
              },
          .reserve =
              [this](int engine_index) {
                if (!sharing_.reserve) return true;
                sharing_.reserve(engine_index);
                return false;
              },
          .release =
              [this](int engine_index, bool has_ended) {
                if (sharing_.release) sharing_.release(engine_index, has_ended);
              },
          .has_other_files =
              [this](const wire::LoraRequest& lora) {
                return has_other_files_ && has_other_files_(lora);
              }};
}

// ---- Both ----

EngineClient::Prefix EngineClient::HashPrefix(const wire::EngineCoreRequest& request) const {
  const bool is_used = options_.routes_by_prefix && options_.num_engines > 1;
  if (!is_used || engine_info() == nullptr) return {};
  return PrefixHashes(request, engine_info()->block_size);
}

void EngineClient::NotePrefix(int engine_index, const Prefix& hashes) {
  if (hashes.empty()) return;
  prefixes_.Add(engine_index, hashes);
  if (on_prefix_sent_) on_prefix_sent_(engine_index, hashes);
}

void EngineClient::SendChoices(const std::vector<wire::EngineCoreRequest*>& choices,
                               int engine_index) {
  const bool is_one_message =
      choices.size() > 1 && health_.is_ours(engine_index) && AreFirstChoices(choices);
  if (!is_one_message) {
    for (const wire::EngineCoreRequest* choice : choices) SendAdd(*choice, engine_index);
    return;
  }
  wire::EngineCoreRequest& first = *choices.front();
  first.sampling_params.n = static_cast<int32_t>(choices.size());
  SendAdd(first, engine_index);
  first.sampling_params.n = 1;
}

void EngineClient::SendAdd(const wire::EngineCoreRequest& request, int engine_index) {
  wire::EncodedMessage message;
  wire::Encode(request, &message, health_.engine_info(engine_index).peer());
  Send(engine_index, wire::RequestType::kAdd, std::move(message));
}

}  // namespace tandem
