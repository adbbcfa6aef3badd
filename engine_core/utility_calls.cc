#include "engine_core/utility_calls.h"

#include <string>
#include <string_view>

#include "common/log.h"
#include "common/log_level.h"
#include "common/process_stats.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/lora_request.h"
#include "proto_msgpack/msgpack_reader.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {
namespace {

using Result = std::optional<StatusOr<wire::RawValue>>;

// Positional arguments; one that is missing or nil takes its default.
class Arguments {
 public:
  explicit Arguments(const wire::RawValue& packed) : reader_(packed.packed) {
    if (!packed.is_nil()) num_left_ = reader_.ArraySize();
  }
  bool NextBool(bool missing) { return HasNext() ? reader_.Bool() : missing; }
  int64_t NextInt(int64_t missing) { return HasNext() ? reader_.Int() : missing; }
  std::string NextString(std::string_view missing) {
    return std::string(HasNext() ? reader_.String() : missing);
  }
  Status status() const { return reader_.status(); }

 private:
  bool HasNext() {
    if (num_left_ == 0) return false;
    --num_left_;
    return !reader_.TryNil();
  }
  wire::MsgpackReader reader_;
  uint32_t num_left_ = 0;
};

Result Nil() { return StatusOr<wire::RawValue>(wire::RawValue()); }
Result Bool(bool value) { return StatusOr<wire::RawValue>(wire::PackedBool(value)); }

Result GetSupportedTasks(const wire::UtilityRequest&, EngineCore*) {
  return StatusOr<wire::RawValue>(wire::PackedStrings({"generate"}));
}

Result IsSchedulerPaused(const wire::UtilityRequest&, EngineCore* engine) {
  return Bool(engine->is_paused());
}

Result IsSleeping(const wire::UtilityRequest&, EngineCore* engine) {
  return Bool(engine->is_sleeping());
}

// (reset_running_requests, reset_connector). The second fails without a connector.
Result ResetPrefixCache(const wire::UtilityRequest& call, EngineCore* engine) {
  Arguments arguments(call.args);
  const bool preempt_running = arguments.NextBool(false);
  const bool reset_connector = arguments.NextBool(false);
  if (!arguments.status().ok()) return arguments.status();
  return Bool(engine->ResetPrefixCache(preempt_running, reset_connector));
}

// Images are kept by the frontend, which prepares them.
Result ResetNothing(const wire::UtilityRequest&, EngineCore*) { return Nil(); }

StatusOr<PauseMode> ParseMode(const std::string& mode) {
  if (mode == "abort") return PauseMode::kAbort;
  if (mode == "wait") return PauseMode::kWait;
  if (mode == "keep") return PauseMode::kKeep;
  return InvalidArgumentError("mode is \"" + mode + "\", must be abort, wait or keep");
}

// (mode, clear_cache)
Result Pause(const wire::UtilityRequest& call, EngineCore* engine) {
  Arguments arguments(call.args);
  const std::string mode = arguments.NextString("abort");
  const bool clear_cache = arguments.NextBool(true);
  if (!arguments.status().ok()) return arguments.status();
  ASSIGN_OR_RETURN(const PauseMode pause, ParseMode(mode));
  engine->Pause(pause, clear_cache, call);
  return std::nullopt;
}

Status CheckSleepMode(const std::string& what, const EngineCore& engine) {
  if (engine.can_release_memory()) return OkStatus();
  return UnimplementedError(what +
                            ": this engine keeps its memory, --enable-sleep-mode was not given");
}

// (level, mode)
Result Sleep(const wire::UtilityRequest& call, EngineCore* engine) {
  Arguments arguments(call.args);
  const int64_t level = arguments.NextInt(1);
  const std::string mode = arguments.NextString("abort");
  if (!arguments.status().ok()) return arguments.status();
  if (level < 0 || level > 2) {
    return InvalidArgumentError("sleep level " + std::to_string(level) + ": must be 0, 1 or 2");
  }
  if (level > 0) RETURN_IF_ERROR(CheckSleepMode("sleep level " + std::to_string(level), *engine));
  ASSIGN_OR_RETURN(const PauseMode pause, ParseMode(mode));
  engine->Sleep(level, pause, call);
  return std::nullopt;
}

// ([tag, ...]); none: all. The result is whether everything is awake.
Result WakeUp(const wire::UtilityRequest& call, EngineCore* engine) {
  MemoryParts parts;
  wire::MsgpackReader reader(call.args.packed);
  const bool has_tags =
      !call.args.is_nil() && reader.ArraySize() > 0 && reader.ok() && !reader.TryNil();
  if (!has_tags) parts = {.weights = true, .kv_cache = true};
  for (uint32_t left = has_tags ? reader.ArraySize() : 0; left > 0 && reader.ok(); --left) {
    const std::string tag(reader.String());
    if (!reader.ok()) break;
    if (tag == "weights") {
      parts.weights = true;
    } else if (tag == "kv_cache") {
      parts.kv_cache = true;
    } else if (tag != "scheduling") {
      return InvalidArgumentError("tag \"" + tag + "\": must be weights, kv_cache or scheduling");
    }
  }
  RETURN_IF_ERROR(reader.status());
  ASSIGN_OR_RETURN(const bool is_awake, engine->WakeUp(parts));
  return Bool(is_awake);
}

Result ReleaseKvCache(const wire::UtilityRequest&, EngineCore* engine) {
  RETURN_IF_ERROR(CheckSleepMode("release_kv_cache_memory", *engine));
  RETURN_IF_ERROR(engine->ReleaseKvCache());
  return Nil();
}

Result Resume(const wire::UtilityRequest&, EngineCore* engine) {
  RETURN_IF_ERROR(engine->Resume());
  return Nil();
}

Result GetWeightVersion(const wire::UtilityRequest&, EngineCore* engine) {
  if (!engine->weight_version()) return Nil();
  return StatusOr<wire::RawValue>(wire::PackedString(*engine->weight_version()));
}

Result SetWeightVersion(const wire::UtilityRequest& call, EngineCore* engine) {
  Arguments arguments(call.args);
  std::string version = arguments.NextString("");
  if (!arguments.status().ok()) return arguments.status();
  engine->set_weight_version(std::move(version));
  return Nil();
}

// The first argument of a call: [name, id, path, ...]. The reader is at the next one.
StatusOr<wire::LoraRequest> LoraOf(const wire::UtilityRequest& call, size_t num_arguments,
                                   EngineCore* engine, wire::MsgpackReader* reader) {
  if (call.args.is_nil() || reader->ArraySize() < num_arguments || !reader->ok()) {
    return InvalidArgumentError(call.method + " needs a LoRARequest");
  }
  const wire::RawValue packed = {std::string(reader->Raw())};
  ASSIGN_OR_RETURN(wire::LoraRequest lora, wire::UnpackLoraRequest(packed));
  RETURN_IF_ERROR(engine->adapters().Check(lora));
  return lora;
}

// The reply comes when the adapter has been read.
Result AddLora(const wire::UtilityRequest& call, EngineCore* engine) {
  wire::MsgpackReader reader(call.args.packed);
  ASSIGN_OR_RETURN(const wire::LoraRequest lora, LoraOf(call, 1, engine, &reader));
  if (!engine->adapters().Add(lora, {call.client_index, call.call_id})) return std::nullopt;
  return Bool(true);
}

Result StageLora(const wire::UtilityRequest& call, EngineCore* engine) {
  wire::MsgpackReader reader(call.args.packed);
  ASSIGN_OR_RETURN(const wire::LoraRequest lora, LoraOf(call, 1, engine, &reader));
  engine->adapters().Stage(lora, {call.client_index, call.call_id});
  return std::nullopt;
}

Result SettleLora(const wire::UtilityRequest& call, EngineCore* engine) {
  wire::MsgpackReader reader(call.args.packed);
  ASSIGN_OR_RETURN(const wire::LoraRequest lora, LoraOf(call, 2, engine, &reader));
  const bool takes_place = reader.Bool();
  if (!reader.ok()) return reader.status();
  return Bool(engine->adapters().Settle(lora, takes_place, engine->scheduler().adapters()));
}

// (lora_int_id)
Result RemoveLora(const wire::UtilityRequest& call, EngineCore* engine) {
  Arguments arguments(call.args);
  const int64_t id = arguments.NextInt(0);
  if (!arguments.status().ok()) return arguments.status();
  return Bool(engine->adapters().Remove(id));
}

Result PinLora(const wire::UtilityRequest& call, EngineCore* engine) {
  Arguments arguments(call.args);
  const int64_t id = arguments.NextInt(0);
  if (!arguments.status().ok()) return arguments.status();
  RETURN_IF_ERROR(engine->adapters().Pin(id));
  return Bool(true);
}

Result ListLoras(const wire::UtilityRequest&, EngineCore* engine) {
  std::vector<wire::RawValue> ids;
  for (const int64_t id : engine->adapters().Ids()) ids.push_back(wire::PackedInt(id));
  return StatusOr<wire::RawValue>(wire::PackedArray(ids));
}

// Ours: the level of the frontend's settings file.
Result SetLevelOfLog(const wire::UtilityRequest& call, EngineCore*) {
  Arguments arguments(call.args);
  const std::string level = arguments.NextString("");
  if (!arguments.status().ok()) return arguments.status();
  RETURN_IF_ERROR(SetLogLevel(level));
  LOG_INFO << "[reload] log level " << level;
  return Nil();
}

// Ours, for the frontend's /metrics.
Result DescribeProcess(const wire::UtilityRequest&, EngineCore* engine) {
  const std::optional<ProcessStats> stats = ReadProcessStats();
  if (!stats) return UnavailableError("/proc/self/stat cannot be read");
  const auto milliseconds = [](double seconds) { return static_cast<int64_t>(seconds * 1e3); };
  std::vector<wire::RawValue> startup;
  for (const StartupPhase& phase : engine->startup()) {
    startup.push_back(wire::PackedString(phase.name));
    startup.push_back(wire::PackedInt(static_cast<int64_t>(phase.seconds * 1e6)));
  }
  return StatusOr<wire::RawValue>(wire::PackedArray(
      {wire::PackedInt(stats->virtual_bytes), wire::PackedInt(stats->resident_bytes),
       wire::PackedInt(milliseconds(stats->cpu_s)),
       wire::PackedInt(milliseconds(stats->started_at)), wire::PackedInt(stats->open_files),
       wire::PackedArray(startup)}));
}

Result DescribeCache(const wire::UtilityRequest&, EngineCore* engine) {
  std::vector<std::string> facts = engine->cache_facts();
  if (const std::optional<int64_t> level = engine->sleep_level()) {
    facts.insert(facts.end(), {"tandem_sleep_level", std::to_string(*level)});
  }
  return StatusOr<wire::RawValue>(wire::PackedStrings(facts));
}

Result ResetEncoderCache(const wire::UtilityRequest&, EngineCore* engine) {
  engine->ResetEncoderCache();
  return Nil();
}

struct Method {
  std::string_view name;
  Result (*call)(const wire::UtilityRequest& call, EngineCore* engine);
};

constexpr Method kMethods[] = {
    {"get_supported_tasks", GetSupportedTasks},
    {"is_sleeping", IsSleeping},
    {"sleep", Sleep},
    {"wake_up", WakeUp},
    {"release_kv_cache_memory", ReleaseKvCache},
    {"is_scheduler_paused", IsSchedulerPaused},
    {"pause_scheduler", Pause},
    {"pause_generation", Pause},
    {"resume_scheduler", Resume},
    {"resume_generation", Resume},
    {"reset_prefix_cache", ResetPrefixCache},
    {"reset_mm_cache", ResetNothing},
    {"reset_encoder_cache", ResetEncoderCache},
    {"get_weight_version", GetWeightVersion},
    {"set_weight_version", SetWeightVersion},
    {"add_lora", AddLora},
    {"remove_lora", RemoveLora},
    {"pin_lora", PinLora},
    {"list_loras", ListLoras},
    {wire::kStageLoraMethod, StageLora},
    {wire::kSettleLoraMethod, SettleLora},
    {wire::kSetLogLevelMethod, SetLevelOfLog},
    {wire::kProcessMethod, DescribeProcess},
    {wire::kCacheFactsMethod, DescribeCache},
};

}  // namespace

Result CallUtility(const wire::UtilityRequest& call, EngineCore* engine) {
  for (const Method& method : kMethods) {
    if (method.name == call.method) return method.call(call, engine);
  }
  return UnimplementedError("method " + call.method + " is not supported by this engine");
}

}  // namespace tandem
