// Seeded random records survive a round trip; truncated, flipped and random bytes are refused or
// decoded, never worse; what we send satisfies the strictest reader and an independent msgpack
// reader.

#include "proto_msgpack/codec.h"
#include "proto_msgpack/lora_request.h"
#include "proto_msgpack/request_spec_decode_metrics.h"

#include <sys/resource.h>

#include <limits>

#include "common/random.h"
#include "common/strings.h"
#include "proto_msgpack/msgpack_reader.h"
#include "tests/support/wire_json.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  uint64_t Bits() { return MixBits(MixBits(seed_) + ++count_); }
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(Bits() % static_cast<uint64_t>(limit));
  }
  bool Maybe() { return Below(3) == 0; }
  double Number() {
    switch (Below(4)) {
      case 0:
        return static_cast<double>(Below(10));
      case 1:
        return -1.0 / static_cast<double>(1 + Below(100));
      case 2:
        return static_cast<double>(Below(1 << 30)) * 1e12;
      default:
        return static_cast<double>(Below(1000)) / 1000;
    }
  }
  int64_t Int() {
    const int64_t value = static_cast<int64_t>(Bits() >> (1 + Below(62)));
    return Maybe() ? -value : value;
  }
  int32_t Int32() { return static_cast<int32_t>(Bits()) >> Below(31); }
  std::string Text() {
    static const std::string_view kPieces[] = {"a", "é", "日本", "😀", "\n", "0123456789abcdef"};
    std::string text;
    for (int64_t i = Below(12); i > 0; --i) text += kPieces[Below(6)];
    if (Below(20) == 0) text.append(300, 'x');
    return text;
  }
  std::vector<TokenId> Ids(int64_t limit = 40) {
    std::vector<TokenId> ids(static_cast<size_t>(Below(limit)));
    for (TokenId& id : ids) id = static_cast<TokenId>(Bits() >> 33 >> Below(31));
    return ids;
  }
  std::vector<std::string> Texts() {
    std::vector<std::string> texts(static_cast<size_t>(Below(4)));
    for (std::string& text : texts) text = Text();
    return texts;
  }
  RawValue Raw() {
    switch (Below(4)) {
      case 0:
        return PackedString(Text());
      case 1:
        return PackedArray({PackedInt(Int()), PackedBool(Maybe()), PackedStrings(Texts())});
      case 2:
        return RawValue{"\x82\xa1k\xc0\xa1v\xcb\x3f\xf0" + std::string(6, '\0')};
      default:
        return {};
    }
  }
  template <class T>
  std::optional<T> Perhaps(T value) {
    return Maybe() ? std::optional<T>(std::move(value)) : std::nullopt;
  }
  Rare<RawValue> RareRaw() {
    RawValue raw = Raw();
    return Maybe() && !raw.is_nil() ? Rare<RawValue>(std::move(raw)) : Rare<RawValue>();
  }
  LogprobsRows Logprobs() {
    LogprobsRows rows;
    rows.num_rows = static_cast<int32_t>(Below(5));
    rows.num_columns = static_cast<int32_t>(1 + Below(Below(5) == 0 ? 200 : 4));
    for (int i = 0; i < rows.num_rows * rows.num_columns; ++i) {
      rows.token_ids.push_back(static_cast<TokenId>(Below(1 << 20)));
      rows.logprobs.push_back(static_cast<float>(-Number()));
    }
    for (int i = 0; i < rows.num_rows; ++i) rows.ranks.push_back(1 + Below(1 << 20));
    return rows;
  }

 private:
  uint64_t seed_;
  uint64_t count_ = 0;
};

StructuredOutputs DrawStructuredOutputs(Draw& draw) {
  StructuredOutputs s;
  s.json = draw.Raw();
  s.regex = draw.Perhaps(draw.Text());
  s.choice = draw.Perhaps(draw.Texts());
  s.grammar = draw.Perhaps(draw.Text());
  s.json_object = draw.Perhaps(draw.Maybe());
  s.disable_any_whitespace = draw.Maybe();
  s.disable_additional_properties = draw.Maybe();
  s.whitespace_pattern = draw.Perhaps(draw.Text());
  s.structural_tag = draw.Perhaps(draw.Text());
  s.backend = draw.Perhaps(draw.Text());
  s.backend_was_auto = draw.Maybe();
  return s;
}

SamplingParams DrawSamplingParams(Draw& draw) {
  SamplingParams p;
  if (draw.Maybe()) p.temperature = draw.Number();
  if (draw.Maybe()) p.top_p = draw.Number();
  if (draw.Maybe()) p.top_k = draw.Int32();
  if (draw.Maybe()) p.min_p = draw.Number();
  if (draw.Maybe()) p.presence_penalty = draw.Number();
  if (draw.Maybe()) p.repetition_penalty = draw.Number();
  p.watermarking = draw.Perhaps(draw.Maybe());
  p.seed = draw.Perhaps(draw.Int());
  p.stop = draw.Texts();
  p.stop_token_ids = draw.Ids();
  p.ignore_eos = draw.Maybe();
  if (draw.Maybe()) p.max_tokens = draw.Int32();
  if (draw.Maybe()) p.min_tokens = draw.Int32();
  p.logprobs = draw.Perhaps(draw.Int32());
  p.prompt_logprobs = draw.Perhaps(draw.Int32());
  if (draw.Maybe()) p.logprob_token_ids = draw.Ids();
  p.detokenize = draw.Maybe();
  p.output_kind = static_cast<OutputKind>(draw.Below(3));
  p.eos_token_id = draw.Perhaps(TokenId{7});
  p.all_stop_token_ids = draw.Ids();
  if (draw.Maybe()) p.structured_outputs = DrawStructuredOutputs(draw);
  for (int64_t i = draw.Below(4); i > 0; --i) {
    p.logit_bias.emplace_back(draw.Int32() & 0xffff, draw.Number());
  }
  if (draw.Maybe()) p.allowed_token_ids = draw.Ids();
  p.extra_args = draw.Raw();
  p.bad_words = draw.Texts();
  for (int64_t i = draw.Below(3); i > 0; --i) p.bad_words_token_ids.push_back(draw.Ids(5));
  p.skip_reading_prefix_cache = draw.Perhaps(draw.Maybe());
  p.thinking_token_budget = draw.Perhaps(draw.Int32());
  p.repetition_detection = draw.Perhaps(RepetitionDetection{8, 2, 3});
  return p;
}

EngineCoreRequest DrawRequest(Draw& draw) {
  EngineCoreRequest r;
  r.request_id = "id" + draw.Text();
  r.prompt_token_ids = draw.Ids(draw.Below(10) == 0 ? 3000 : 20);
  r.mm_features = draw.Raw();
  r.pooling_params = draw.Below(10) == 0 ? draw.Raw() : RawValue();
  if (r.pooling_params.is_nil()) r.sampling_params = DrawSamplingParams(draw);
  r.arrival_time = draw.Number();
  r.lora_request = draw.Raw();
  r.cache_salt = draw.Perhaps(draw.Text());
  r.data_parallel_rank = draw.Perhaps(draw.Int32());
  r.client_index = draw.Int32();
  r.priority = draw.Below(4) == 0 ? INT64_MIN : draw.Int();
  r.trace_headers = draw.Raw();
  r.resumable = draw.Maybe();
  r.external_req_id = draw.Perhaps(draw.Text());
  r.reasoning_ended = draw.Perhaps(draw.Maybe());
  r.abort_immediately = draw.Maybe();
  r.session_id = draw.Perhaps(draw.Text());
  r.kv_hints = draw.Raw();
  if (draw.Maybe()) r.own.num_prior_output_tokens = draw.Int32();
  if (draw.Maybe()) {
    r.own.reasoning = ReasoningMarks{draw.Ids(3), draw.Ids(2), draw.Ids(2), draw.Ids(9)};
  }
  if (draw.Maybe()) r.aux_frames = draw.Texts();
  return r;
}

EngineCoreOutput DrawOutput(Draw& draw) {
  EngineCoreOutput o;
  o.request_id = draw.Text();
  o.new_token_ids = draw.Ids(4);
  if (draw.Maybe()) o.new_logprobs = draw.Logprobs();
  if (draw.Maybe()) o.new_prompt_logprobs = draw.Logprobs();
  if (draw.Maybe()) {
    const std::vector<float> values(static_cast<size_t>(draw.Below(200)), 0.5f);
    const std::string_view bytes(reinterpret_cast<const char*>(values.data()), 4 * values.size());
    o.pooling_output = PackedTensor(
        {.dtype = "float32", .shape = {static_cast<int64_t>(values.size())}, .data = bytes});
  }
  o.finish_reason = draw.Perhaps(static_cast<FinishReason>(draw.Below(5)));
  if (draw.Maybe()) o.stop_reason = draw.Int();
  if (draw.Maybe()) o.stop_reason = draw.Text();
  for (int64_t i = draw.Below(4); i > 0; --i) {
    o.events.push_back({static_cast<EventType>(1 + draw.Below(3)), draw.Number()});
  }
  o.kv_transfer_params = draw.RareRaw();
  o.ec_transfer_params = draw.RareRaw();
  if (draw.Maybe()) o.prefill_stats = PrefillStats{draw.Int(), 1, 2, draw.Int(), 4, 5};
  o.num_nans_in_logits = draw.Int32();
  o.spec_decode_metrics = draw.RareRaw();
  if (draw.Maybe()) o.error = EngineCoreError{draw.Text(), draw.Text(), draw.Maybe()};
  return o;
}

SchedulerStats DrawStats(Draw& draw) {
  SchedulerStats s;
  s.num_running_reqs = draw.Int();
  s.num_waiting_reqs = draw.Int();
  s.num_kv_fetch_reqs_by_stage = {{draw.Text(), draw.Int()}};
  s.kv_cache_usage = draw.Number();
  s.iteration_details = draw.Raw();
  s.prefix_cache_stats.reset = draw.Maybe();
  s.prefix_cache_stats.queries = draw.Int();
  s.prefix_cache_stats.hits_by_source = {{"local", draw.Int()}};
  for (int64_t i = draw.Below(3); i > 0; --i) {
    s.kv_cache_eviction_events.push_back({draw.Number(), draw.Number(), {draw.Number(), 1.5}});
  }
  if (draw.Maybe()) {
    s.spec_decoding_stats = SpecDecodingStats{
        draw.Int(), draw.Int(), draw.Int(), draw.Int(), {draw.Int(), draw.Int()}, {draw.Int()}};
  }
  s.waiting_lora_adapters = {{draw.Text(), 3}, {draw.Text(), 4}};
  return s;
}

EngineCoreOutputs DrawOutputs(Draw& draw) {
  EngineCoreOutputs m;
  m.engine_index = draw.Int32();
  m.timestamp = draw.Number();
  if (draw.Below(5) == 0) {
    m.utility_output = UtilityOutput{draw.Bits(), std::nullopt, draw.Raw()};
    if (draw.Maybe()) m.utility_output = UtilityOutput{draw.Bits(), draw.Text(), {}};
    return m;
  }
  for (int64_t i = draw.Below(6); i > 0; --i) m.outputs.push_back(DrawOutput(draw));
  if (draw.Maybe() || m.outputs.empty()) m.scheduler_stats = DrawStats(draw);
  if (draw.Maybe()) m.finished_requests = draw.Texts();
  m.weight_version = draw.Perhaps(draw.Text());
  return m;
}

StatusOr<EngineInput> DecodeAdd(const EncodedMessage& message) {
  return DecodeInput(0, Views(message));
}

constexpr uint64_t kSeed = 11;

TEST_CASE("codec property: random requests come back as they were sent") {
  CAPTURE(kSeed);
  Draw draw(kSeed);
  EncodedMessage message;
  for (int i = 0; i < 1000; ++i) {
    CAPTURE(i);
    const EngineCoreRequest request = DrawRequest(draw);
    Encode(request, &message, Peer::kTandem);
    const auto decoded = DecodeAdd(message);
    INFO(decoded.status().ToString());
    REQUIRE(decoded.ok());
    REQUIRE(std::get<EngineCoreRequest>(*decoded) == request);
    const auto sender = FindSender(message.body);
    REQUIRE(sender.has_value());
    CHECK(sender->request_id == request.request_id);
    CHECK(sender->client_index == request.client_index);
  }
}

TEST_CASE(
    "codec property: random outputs come back, into a used record too, and suit every reader") {
  CAPTURE(kSeed);
  Draw draw(kSeed + 1);
  EncodedMessage message;
  EngineCoreOutputs reused;
  for (int i = 0; i < 1000; ++i) {
    CAPTURE(i);
    const EngineCoreOutputs outputs = DrawOutputs(draw);
    Encode(outputs, &message);
    const Status status = Decode(Views(message), &reused);
    INFO(status.ToString());
    REQUIRE(status.ok());
    REQUIRE(reused == outputs);
    REQUIRE(FindFatalFault(Views(message)) == "");
  }
}

TEST_CASE("codec property: start-up messages come back") {
  EncodedMessage message;
  const EngineStatus hello{"HELLO", false, true, "hash"};
  Encode(hello, &message);
  EngineStatus status;
  REQUIRE(Decode(Views(message), &status).ok());
  CHECK(status == hello);
  InitMessage init;
  init.addresses = {{"ipc://a", "ipc://b"}, {"ipc://c", "ipc://d"}, "x", std::nullopt, "y"};
  Encode(init, &message);
  CHECK(ToJson(message.body)["parallel_config"].is_object());
  InitMessage decoded_init;
  REQUIRE(Decode(Views(message), &decoded_init).ok());
  CHECK(decoded_init.addresses == init.addresses);
  EngineCoreReadyResponse response;
  response.tandem_version = "0.1";
  response.kv_cache_max_concurrency = 2;
  Encode(response, &message);
  EngineCoreReadyResponse decoded;
  REQUIRE(Decode(Views(message), &decoded).ok());
  CHECK(decoded == response);
}

// The request's array with more elements after it.
EncodedMessage WithTail(const EngineCoreRequest& request, const std::vector<std::string>& tail) {
  EncodedMessage message;
  Encode(request, &message);
  REQUIRE(message.body.substr(0, 3) == std::string("\xdc\x00\x16", 3));
  message.body[2] = static_cast<char>(22 + tail.size());
  for (const std::string& element : tail) message.body += element;
  return message;
}

TEST_CASE(
    "codec property: metrics of a request's drafts come back, cut or broken ones are refused") {
  CAPTURE(kSeed);
  Draw draw(kSeed);
  for (int i = 0; i < 100; ++i) {
    RequestSpecDecodeMetrics metrics;
    metrics.num_spec_tokens = draw.Int();
    metrics.num_draft_tokens = draw.Int();
    for (int64_t n = draw.Below(5); n > 0; --n) metrics.histogram.push_back(draw.Below(100));
    for (int64_t n = draw.Below(5); n > 0; --n) metrics.per_step_accepted.push_back(draw.Int());
    for (int64_t n = draw.Below(5); n > 0; --n) metrics.per_step_drafted.push_back(draw.Int());
    const RawValue packed = Packed(metrics);
    const auto read = UnpackSpecDecodeMetrics(packed);
    REQUIRE(read.ok());
    CHECK(*read == metrics);
    for (size_t size = 0; size < packed.packed.size(); ++size) {
      CHECK_FALSE(UnpackSpecDecodeMetrics({packed.packed.substr(0, size)}).ok());
    }
  }
  const RequestSpecDecodeMetrics counts = {.num_spec_tokens = 2, .histogram = {5, 1, 3}};
  CHECK(counts.num_steps() == 9);
  CHECK(counts.num_accepted() == 7);
}

TEST_CASE("codec: an adapter of a request has vLLM's bytes") {
  const std::pair<LoraRequest, const char*> recorded[] = {
      {{.name = "a", .id = 1, .path = "/p/a"}, "96a16101a42f702f61c0c2c2"},
      {{.name = "a", .id = 2, .path = "/p/a", .base_model_name = "b"},
       "96a16102a42f702f61a162c2c2"},
      {{.name = "\u00e9", .id = 300, .path = "/p", .load_inplace = true},
       "96a2c3a9cd012ca22f70c0c3c2"},
      {{.name = "m", .id = 3, .path = "/p", .is_3d_lora_weight = true}, "96a16d03a22f70c0c2c3"}};
  for (const auto& [lora, hex] : recorded) {
    const RawValue packed = Packed(lora);
    CHECK(packed.packed == *HexDecode(hex));
    const auto read = UnpackLoraRequest(packed);
    REQUIRE(read.ok());
    CHECK(*read == lora);
    for (size_t size = 0; size < packed.packed.size(); ++size) {
      CHECK_FALSE(UnpackLoraRequest({packed.packed.substr(0, size)}).ok());
    }
  }
  // What follows the path may be left out, and an id is a number.
  CHECK(UnpackLoraRequest({*HexDecode("93a16101a12f")}).ok());
  CHECK_FALSE(UnpackLoraRequest({*HexDecode("92a16101")}).ok());
  CHECK_FALSE(UnpackLoraRequest({*HexDecode("93a161a131a12f")}).ok());
}

TEST_CASE("codec: a request without fields of our own is vLLM's array of 22 for either peer") {
  Draw draw(kSeed + 6);
  EngineCoreRequest request = DrawRequest(draw);
  request.own = {};
  EncodedMessage to_foreign, to_tandem;
  Encode(request, &to_foreign, Peer::kForeign);
  Encode(request, &to_tandem, Peer::kTandem);
  CHECK(to_foreign.body == to_tandem.body);
  CHECK(to_foreign.body.substr(0, 3) == std::string("\xdc\x00\x16", 3));
}

TEST_CASE("codec: our own fields of a request are a map after the 22 elements") {
  EngineCoreRequest request;
  request.request_id = "a";
  request.prompt_token_ids = {1, 2, 3};
  EncodedMessage plain, message;
  Encode(request, &plain);
  request.own.num_prior_output_tokens = 2;
  Encode(request, &message, Peer::kTandem);
  CHECK(message.body.substr(3) ==
        plain.body.substr(3) + "\x81\xa6tandem\x81\xb7num_prior_output_tokens\x02");
  const auto decoded = DecodeAdd(message);
  REQUIRE(decoded.ok());
  CHECK(std::get<EngineCoreRequest>(*decoded) == request);
}

TEST_CASE("codec: tails of other programs are skipped, ours is found among them") {
  const std::string ours = "\x81\xa6tandem\x81\xb7num_prior_output_tokens\x05";
  EngineCoreRequest request;
  request.request_id = "a";
  for (const std::string& foreign :
       {std::string("\xc0"), std::string("\x05"), std::string("\xa6tandem"), std::string("\x80"),
        std::string("\x92\x01\x02"), std::string("\x81\x01\x02"), std::string("\x81\xa3new\x02"),
        std::string("\x82\xa6tandem\x01\xa1k\x02"), std::string("\x81\xa2\xff\xff\x02")}) {
    CAPTURE(HexEncode(foreign));
    const auto skipped = DecodeAdd(WithTail(request, {foreign}));
    INFO(skipped.status().ToString());
    REQUIRE(skipped.ok());
    CHECK(std::get<EngineCoreRequest>(*skipped) == request);
    EngineCoreRequest continued = request;
    continued.own.num_prior_output_tokens = 5;
    for (const auto& tail : {std::vector{foreign, ours}, std::vector{ours, foreign}}) {
      const auto found = DecodeAdd(WithTail(request, tail));
      REQUIRE(found.ok());
      CHECK(std::get<EngineCoreRequest>(*found) == continued);
    }
  }
}

TEST_CASE("codec: in our own tail unknown keys are skipped, values of a wrong kind refused") {
  EngineCoreRequest request;
  request.request_id = "a";
  const auto decode = [&](const std::string& fields) {
    return DecodeAdd(WithTail(request, {"\x81\xa6tandem" + fields}));
  };
  const auto newer = decode("\x82\xa5later\x91\x01\xb7num_prior_output_tokens\x05");
  REQUIRE(newer.ok());
  CHECK(std::get<EngineCoreRequest>(*newer).own.num_prior_output_tokens == 5);
  CHECK_FALSE(decode("\x81\xb7num_prior_output_tokens\xa1x").ok());
  CHECK_FALSE(decode("\x81\xb7num_prior_output_tokens\xcf\x7f\xff\xff\xff\xff\xff\xff\xff").ok());
  CHECK_FALSE(decode("\xc0").ok());
}

TEST_CASE("codec: READY names Tandem by a key that others leave out") {
  EngineCoreReadyResponse ready;
  EncodedMessage message;
  Encode(ready, &message);
  EngineCoreReadyResponse decoded;
  REQUIRE(Decode(Views(message), &decoded).ok());
  CHECK(decoded.peer() == Peer::kForeign);
  ready.tandem_version = "0.1";
  Encode(ready, &message);
  REQUIRE(Decode(Views(message), &decoded).ok());
  CHECK(decoded.peer() == Peer::kTandem);
}

// Runs every decoder over the same bytes; returns whether any of them accepted it.
bool AnyDecodes(const std::vector<std::string_view>& frames) {
  bool any = false;
  for (uint8_t type = 0; type < 6; ++type) any |= DecodeInput(type, frames).ok();
  EngineCoreOutputs outputs;
  EngineStatus status;
  InitMessage init;
  EngineCoreReadyResponse ready;
  any |= Decode(frames, &outputs).ok();
  any |= Decode(frames, &status).ok();
  any |= Decode(frames, &init).ok();
  any |= Decode(frames, &ready).ok();
  FindSender(frames[0]);
  return any;
}

TEST_CASE("codec property: a message cut anywhere is refused") {
  Draw draw(kSeed + 2);
  EncodedMessage message;
  for (int i = 0; i < 30; ++i) {
    if (i % 2 == 0) {
      Encode(DrawRequest(draw), &message, Peer::kTandem);
    } else {
      Encode(DrawOutputs(draw), &message);
    }
    for (size_t size = 0; size < message.body.size(); size += 1 + size / 256) {
      CAPTURE(i, size);
      std::vector<std::string_view> frames = Views(message);
      frames[0] = frames[0].substr(0, size);
      CHECK_FALSE(AnyDecodes(frames));
    }
    // A missing frame is noticed where an array needs it.
    if (!message.aux.empty() && i % 2 == 1) {
      EngineCoreOutputs outputs;
      CHECK_FALSE(Decode(Frames(Views(message)).first(1), &outputs).ok());
    }
  }
}

TEST_CASE("codec property: flipped bits and random bytes are decoded or refused, never worse") {
  CAPTURE(kSeed);
  Draw draw(kSeed + 3);
  EncodedMessage message;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    if (i % 2 == 0) {
      Encode(DrawRequest(draw), &message, Peer::kTandem);
    } else {
      Encode(DrawOutputs(draw), &message);
    }
    for (int64_t flips = 1 + draw.Below(4); flips > 0; --flips) {
      const auto at = static_cast<size_t>(draw.Below(static_cast<int64_t>(message.body.size())));
      message.body[at] = static_cast<char>(message.body[at] ^ (1 << draw.Below(8)));
    }
    refused += !AnyDecodes(Views(message));
  }
  CHECK(refused > 500);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(static_cast<size_t>(1 + draw.Below(60)), '\0');
    for (char& c : bytes) c = static_cast<char>(draw.Bits());
    if (i % 2 == 0) bytes[0] = static_cast<char>(0x90 + draw.Below(16));
    AnyDecodes({bytes});
  }
}

long PeakKilobytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST_CASE("codec: announced sizes cost nothing before their bytes are there") {
  const long before = PeakKilobytes();
  for (const char* hex : {"ddffffffff", "dfffffffff", "dbffffffff", "c6ffffffff", "c9ffffffff03",
                          // the same inside a record: prompt_token_ids, a raw field, outputs
                          "dc0016a161ddffffffff", "dc0016a16190ddffffffff", "9900ddffffffff"}) {
    INFO(hex);
    CHECK_FALSE(AnyDecodes({*HexDecode(hex)}));
  }
  CHECK(PeakKilobytes() - before < 16 * 1024);
}

TEST_CASE("codec: nesting is limited, pickled values are refused anywhere") {
  std::string deep = *HexDecode("dc0009a16190");
  deep += std::string(100000, '\x91') + '\xc0';
  const auto refused = DecodeInput(0, std::vector<std::string_view>{deep});
  CHECK(refused.status().message().find("nested too deep") != std::string::npos);
  for (const char* ext : {"d40100", "d40200", "c7030100ff00"}) {
    INFO(ext);
    const std::string field = *HexDecode(std::string("dc0009a16190") + ext + "80c000c0c0c0");
    const auto pickled = DecodeInput(0, std::vector<std::string_view>{field});
    CHECK(pickled.status().message().find("pickled") != std::string::npos);
    const std::string tail = *HexDecode(std::string("93a16190") + ext);  // where a reader skips
    MsgpackReader reader(tail);
    reader.Skip();
    CHECK_FALSE(reader.ok());
  }
}

TEST_CASE("codec: both spellings of numbers, nil for a default, unknown keys and longer tails") {
  // temperature f32 0.5, top_p int 1, top_k nil, an unknown key; 24 elements.
  const std::string params =
      "84ab74656d7065726174757265ca3f000000a5746f705f7001a5746f705f6bc0a378797a93010203";
  const std::string body =
      *HexDecode("dc0018a1619101c0" + params +
                 "c0cb4000000000000000c0c0c0c0c0000000c0c2c0c0c0c2c0c0a5657874726181a16b01");
  const auto decoded = DecodeInput(0, std::vector<std::string_view>{body});
  INFO(decoded.status().ToString());
  REQUIRE(decoded.ok());
  const auto& request = std::get<EngineCoreRequest>(*decoded);
  CHECK(request.sampling_params.temperature == 0.5);
  CHECK(request.sampling_params.top_p == 1);
  CHECK(request.sampling_params.top_k == 0);
  CHECK(request.arrival_time == 2);

  // Nine elements are enough, eight are not.
  CHECK(DecodeInput(0, std::vector<std::string_view>{*HexDecode("99a1619101c080c000c0c0c0")}).ok());
  const auto short_one =
      DecodeInput(0, std::vector<std::string_view>{*HexDecode("98a1619101c080c000c0c0")});
  CHECK(short_one.status().message().find("too short") != std::string::npos);
  // A map where an array belongs, NaN, a float for an integer, bytes after the end.
  for (const char* hex :
       {"81a16101", "99a1619101c081ab74656d7065726174757265cb7ff8000000000000c000c0c0c0",
        "99a16191cb3ff0000000000000c080c000c0c0c0", "99a1619101c080c000c0c0c0c0"}) {
    INFO(hex);
    CHECK_FALSE(DecodeInput(0, std::vector<std::string_view>{*HexDecode(hex)}).ok());
  }
}

TEST_CASE("codec: short outputs default their tail, long ones lose it") {
  EngineCoreOutputs outputs;
  outputs.weight_version = "left from before";
  outputs.timestamp = 9;
  const std::string two = *HexDecode("92059192a1729107");
  REQUIRE(Decode(std::vector<std::string_view>{two}, &outputs).ok());
  EngineCoreOutputs want;
  want.engine_index = 5;
  want.outputs.resize(1);
  want.outputs[0].request_id = "r";
  want.outputs[0].new_token_ids = {7};
  CHECK(outputs == want);
  const std::string ten = *HexDecode("9a059192a1729107c000c0c0c0c0c0a3787878");
  REQUIRE(Decode(std::vector<std::string_view>{ten}, &outputs).ok());
  CHECK(outputs == want);
  const std::string one = *HexDecode("9105");
  REQUIRE(Decode(std::vector<std::string_view>{one}, &outputs).ok());
  CHECK(outputs.outputs.empty());
}

TEST_CASE("codec: the strict reader sees each fault it is there for") {
  const auto fault = [](const char* hex) {
    const std::string bytes = *HexDecode(hex);
    return FindFatalFault({bytes});
  };
  CHECK(fault("990090c0cb3ff0000000000000c0c0c0c0c0") == "nothing in it");
  CHECK(fault("9a0090c0cb3ff0000000000000c091a161c0c0c0c0") == "the message has a 10th element");
  CHECK(fault("99009192a17291ffc0cb3ff0000000000000c0c0c0c0c0") ==
        "a token id is no unsigned 32 bit number");
  CHECK(fault("99009196a1729107c0c0c005c0cb3ff0000000000000c0c0c0c0c0") ==
        "finish_reason is not in 0 to 4");
  CHECK(fault("990090c0cb3ff0000000000000c0c004c0c0") == "a wave word on an output socket");
  CHECK(fault("99009192a1729107c0cb3ff00000000000009301c0c0c0c0c0c0") ==
        "outputs together with a utility reply");
  CHECK(fault("99009180c0cb3ff0000000000000c0c0c0c0c0") == "an output is no array");
  CHECK(fault("99009081a1610100c0c0c0c0c0").find("scheduler_stats lacks") == 0);
  CHECK(fault("99009192a1729107c0cb3ff0000000000000c0c0c0c0c0") == "");
}

}  // namespace
}  // namespace tandem::wire
