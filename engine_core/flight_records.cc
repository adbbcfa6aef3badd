#include "engine_core/flight_records.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "engine_core/read_images.h"
#include "engine_core/scheduler/packed_request.h"

namespace tandem {
namespace {

enum class EventKind : uint8_t {
  kAdd,
  kAbort,
  kUtility,
  kStartWave,
  kClientLost,
  kGrammarCompiled,
  kGrammarResult,
  kShutdown,
  kLogState,
  kLeave,
  kAdapterLoaded,
};

// ---- one event ----

void Pack(wire::EngineCoreRequest& request, ByteWriter* out) {
  out->Fixed(EventKind::kAdd);
  std::vector<TokenId> tokens = std::exchange(request.prompt_token_ids, {});
  std::optional<RecordedImages> images = WithoutPixels(request);
  const auto swap = [&] {
    if (!images) return;
    std::swap(request.mm_features, images->mm_features);
    std::swap(request.aux_frames, images->aux_frames);
  };
  swap();
  PackRequest(request, tokens, out);
  swap();
  request.prompt_token_ids = std::move(tokens);
}

void Pack(const wire::AbortRequest& ids, ByteWriter* out) {
  out->Fixed(EventKind::kAbort);
  out->Varint(ids.size());
  for (const RequestId& id : ids) out->Bytes(id);
}

void Pack(const wire::UtilityRequest& call, ByteWriter* out) {
  out->Fixed(EventKind::kUtility);
  out->Signed(call.client_index);
  out->Fixed(call.call_id);
  out->Bytes(call.method);
  out->Bytes(call.args.packed);
}

void Pack(const wire::StartDpWave& wave, ByteWriter* out) {
  out->Fixed(EventKind::kStartWave);
  out->Signed(wave.wave);
  out->Signed(wave.exclude_engine_index);
}

void Pack(const wire::ClientLost& lost, ByteWriter* out) {
  out->Fixed(EventKind::kClientLost);
  out->Signed(lost.client_index);
}

void Pack(wire::EngineInput& input, ByteWriter* out) {
  std::visit([out](auto& message) { Pack(message, out); }, input);
}

void Pack(const GrammarCompiled& compiled, ByteWriter* out) {
  out->Fixed(EventKind::kGrammarCompiled);
  out->Signed(compiled.grammar_id);
  PackStatus(compiled.status, out);
}

void PackResult(const GrammarResult& result, ByteWriter* out) {
  out->Bytes(result.request_id);
  out->Signed(result.request_order);
  PackStatus(result.status, out);
}

GrammarResult UnpackResult(ByteReader* in) {
  GrammarResult result;
  result.request_id = RequestId(in->Bytes());
  result.request_order = in->Signed();
  result.status = UnpackStatus(in);
  return result;
}

void Pack(const GrammarResult& result, ByteWriter* out) {
  out->Fixed(EventKind::kGrammarResult);
  PackResult(result, out);
}

void Pack(const AdapterLoaded& loaded, ByteWriter* out) {
  out->Fixed(EventKind::kAdapterLoaded);
  out->Signed(loaded.id);
  PackStatus(loaded.status, out);
  out->Fixed(loaded.digest);
}

AdapterLoaded UnpackLoaded(ByteReader* in) {
  AdapterLoaded loaded;
  loaded.id = static_cast<AdapterId>(in->Signed());
  loaded.status = UnpackStatus(in);
  loaded.digest = in->Fixed<uint64_t>();
  return loaded;
}

void Pack(const ShutdownRequest&, ByteWriter* out) { out->Fixed(EventKind::kShutdown); }
void Pack(const LogStateRequest&, ByteWriter* out) { out->Fixed(EventKind::kLogState); }
void Pack(const LeaveRequest&, ByteWriter* out) { out->Fixed(EventKind::kLeave); }

wire::UtilityRequest UnpackUtility(ByteReader* in) {
  wire::UtilityRequest call;
  call.client_index = static_cast<int32_t>(in->Signed());
  call.call_id = in->Fixed<uint64_t>();
  call.method = std::string(in->Bytes());
  call.args.packed = std::string(in->Bytes());
  return call;
}

wire::AbortRequest UnpackAbort(ByteReader* in) {
  wire::AbortRequest ids;
  for (size_t left = in->Count(); left > 0; --left) ids.emplace_back(in->Bytes());
  return ids;
}

GrammarCompiled UnpackCompiled(ByteReader* in) {
  GrammarCompiled compiled;
  compiled.grammar_id = in->Signed();
  compiled.status = UnpackStatus(in);
  return compiled;
}

StatusOr<EngineEvent> UnpackKind(EventKind kind, ByteReader* in) {
  switch (kind) {
    case EventKind::kAdd: {
      ASSIGN_OR_RETURN(wire::EngineCoreRequest request, UnpackRequest(in));
      return EngineEvent(wire::EngineInput(std::move(request)));
    }
    case EventKind::kAbort:
      return EngineEvent(wire::EngineInput(UnpackAbort(in)));
    case EventKind::kUtility:
      return EngineEvent(wire::EngineInput(UnpackUtility(in)));
    case EventKind::kStartWave: {
      const int64_t wave = in->Signed();
      return EngineEvent(
          wire::EngineInput(wire::StartDpWave{wave, static_cast<int32_t>(in->Signed())}));
    }
    case EventKind::kClientLost:
      return EngineEvent(wire::EngineInput(wire::ClientLost{static_cast<int32_t>(in->Signed())}));
    case EventKind::kGrammarCompiled:
      return EngineEvent(UnpackCompiled(in));
    case EventKind::kGrammarResult:
      return EngineEvent(UnpackResult(in));
    case EventKind::kShutdown:
      return EngineEvent(ShutdownRequest{});
    case EventKind::kLogState:
      return EngineEvent(LogStateRequest{});
    case EventKind::kLeave:
      return EngineEvent(LeaveRequest{});
    case EventKind::kAdapterLoaded:
      return EngineEvent(UnpackLoaded(in));
  }
  return DataLossError("an event of an unknown kind");
}

// ---- digests ----

class Digest {
 public:
  void Add(uint64_t word) {
    value_ = (value_ ^ word) * 0x9e3779b97f4a7c15u;
    value_ ^= value_ >> 32;
  }
  void Add(int64_t a, int64_t b) {
    Add((static_cast<uint64_t>(a) << 32) ^ (static_cast<uint64_t>(b) & 0xffffffffu));
  }
  void Add(std::string_view text) {
    Add(text.size());
    for (const char c : text) Add(static_cast<uint64_t>(static_cast<uint8_t>(c)));
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0x243f6a8885a308d3u;
};

}  // namespace

std::string_view RecordKindName(RecordKind kind) {
  constexpr std::string_view kNames[] = {
      "",     "checkpoint",      "event",         "turn",         "end of step", "clock reading",
      "step", "result",          "lost executor", "grammar wait", "grammars",    "grammar failures",
      "gap",  "change of memory"};
  const auto i = static_cast<size_t>(kind);
  return i > 0 && i < std::size(kNames) ? kNames[i] : "unknown record";
}

void PackEvent(EngineEvent* event, ByteWriter* out) {
  std::visit([out](auto& kind) { Pack(kind, out); }, *event);
}

StatusOr<EngineEvent> UnpackEvent(std::string_view payload) {
  ByteReader in(payload);
  const auto kind = in.Fixed<EventKind>();
  StatusOr<EngineEvent> event = UnpackKind(kind, &in);
  if (event.ok() && !in.ok()) return DataLossError("an event is cut off");
  return event;
}

SubmittedStep DescribeStep(const SchedulerOutput& step, int64_t number) {
  Digest digest;
  for (const ScheduledRequest& request : step.requests) {
    digest.Add(Index(request.slot), request.num_computed_tokens);
    digest.Add(request.num_scheduled_tokens, request.num_new_blocks);
    digest.Add(static_cast<int64_t>(request.kind) * 2 + (request.needs_sample ? 1 : 0),
               request.num_draft_tokens);
  }
  for (const BlockId block : step.new_block_ids) digest.Add(static_cast<uint64_t>(Index(block)));
  for (const TokenId draft : step.draft_token_ids) digest.Add(static_cast<uint64_t>(draft));
  for (const RequestSlot slot : step.freed_slots) digest.Add(Index(slot), -1);
  for (const AdmittedRequest& admitted : step.admitted) {
    digest.Add(*admitted.request_id);
    digest.Add(static_cast<int64_t>(admitted.token_ids.size()), admitted.num_prompt_tokens);
    if (admitted.adapter != nullptr) digest.Add(admitted.adapter->id, admitted.adapter->version);
  }
  for (const EncoderInput& input : step.encoder_inputs) {
    digest.Add(input.key);
    digest.Add(input.image != nullptr, input.num_slices);
  }
  for (const std::string& key : step.dropped_encoder_outputs) digest.Add(key);
  for (const TokenMask& mask : step.token_masks) digest.Add(mask.request_idx, -2);
  return {.number = number,
          .digest = digest.value(),
          .num_requests = static_cast<int32_t>(step.requests.size()),
          .num_tokens = step.num_scheduled_tokens};
}

void PackSubmitted(const SubmittedStep& step, ByteWriter* out) {
  out->Signed(step.number);
  out->Fixed(step.digest);
  out->Signed(step.num_requests);
  out->Signed(step.num_tokens);
}

StatusOr<SubmittedStep> UnpackSubmitted(std::string_view payload) {
  ByteReader in(payload);
  SubmittedStep step;
  step.number = in.Signed();
  step.digest = in.Fixed<uint64_t>();
  step.num_requests = static_cast<int32_t>(in.Signed());
  step.num_tokens = static_cast<int32_t>(in.Signed());
  if (!in.ok()) return DataLossError("a step is cut off");
  return step;
}

void CopyForced(const SchedulerOutput& step, ForcedRuns* forced) {
  forced->clear();
  for (const TokenMask& mask : step.token_masks) {
    if (mask.num_forced == 0) continue;
    const std::span<const TokenId> tokens = step.Forced(mask);
    forced->push_back(mask.request_idx);
    forced->push_back(mask.num_forced);
    forced->insert(forced->end(), tokens.begin(), tokens.end());
  }
}

void SetForced(const ForcedRuns& forced, SchedulerOutput* step) {
  auto mask = step->token_masks.begin();
  for (size_t i = 0; i + 2 <= forced.size();) {
    const auto size = static_cast<size_t>(std::max(forced[i + 1], 0));
    if (size > forced.size() - i - 2) return;
    while (mask != step->token_masks.end() && mask->request_idx < forced[i]) ++mask;
    if (mask == step->token_masks.end() || mask->request_idx != forced[i]) return;
    const auto tokens = std::span(forced).subspan(i + 2, size);
    if (std::ranges::any_of(tokens, [](int32_t token) { return token < 0; })) return;
    mask->forced_begin = static_cast<int32_t>(step->forced_token_ids.size());
    mask->num_forced = static_cast<int32_t>(size);
    step->forced_token_ids.insert(step->forced_token_ids.end(), tokens.begin(), tokens.end());
    i += 2 + size;
  }
}

void PackCollected(int64_t number, const ModelOutput& result, const ForcedRuns& forced,
                   ByteWriter* out) {
  out->Signed(number);
  out->List(std::span<const TokenId>(result.sampled_token_ids));
  out->Varint(result.results.size());
  for (const RequestResult& one : result.results) {
    out->Signed(one.request_idx);
    PackStatus(one.status, out);
  }
  out->Varint(result.drafts.size());
  for (const DraftResult& one : result.drafts) out->Fixed(one);
  out->List(std::span<const TokenId>(result.draft_token_ids));
  out->List(std::span<const int32_t>(forced));
}

Status UnpackCollected(std::string_view payload, int64_t* number, ModelOutput* result,
                       ForcedRuns* forced) {
  ByteReader in(payload);
  result->Clear();
  *number = in.Signed();
  in.List(&result->sampled_token_ids);
  for (size_t left = in.Count(); left > 0; --left) {
    RequestResult& one = result->results.emplace_back();
    one.request_idx = static_cast<int32_t>(in.Signed());
    one.status = UnpackStatus(&in);
  }
  for (size_t left = in.Count(); left > 0; --left) {
    result->drafts.push_back(in.Fixed<DraftResult>());
  }
  in.List(&result->draft_token_ids);
  in.List(forced);
  return in.ok() ? OkStatus() : DataLossError("a step's result is cut off");
}

void PackStatus(const Status& status, ByteWriter* out) {
  out->Fixed(static_cast<uint8_t>(status.code()));
  if (!status.ok()) out->Bytes(status.message());
}

Status UnpackStatus(ByteReader* in) {
  const auto code = static_cast<StatusCode>(in->Fixed<uint8_t>());
  if (code == StatusCode::kOk) return OkStatus();
  return Status(code, std::string(in->Bytes()));
}

void PackGrammarResults(const std::vector<GrammarResult>& results, ByteWriter* out) {
  out->Varint(results.size());
  for (const GrammarResult& result : results) PackResult(result, out);
}

std::vector<GrammarResult> UnpackGrammarResults(std::string_view payload) {
  ByteReader in(payload);
  std::vector<GrammarResult> results;
  for (size_t left = in.Count(); left > 0; --left) results.push_back(UnpackResult(&in));
  return results;
}

void PackGrammarFailures(const std::vector<GrammarFailure>& failures, ByteWriter* out) {
  out->Varint(failures.size());
  for (const GrammarFailure& failure : failures) {
    PackResult({failure.request_id, failure.request_order, failure.status}, out);
    out->Fixed(failure.starts_again);
  }
}

std::vector<GrammarFailure> UnpackGrammarFailures(std::string_view payload) {
  ByteReader in(payload);
  std::vector<GrammarFailure> failures;
  for (size_t left = in.Count(); left > 0; --left) {
    GrammarResult result = UnpackResult(&in);
    failures.push_back({std::move(result.request_id), result.request_order,
                        std::move(result.status), in.Fixed<uint8_t>() != 0});
  }
  return failures;
}

}  // namespace tandem
