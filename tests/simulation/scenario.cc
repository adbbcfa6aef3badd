#include "tests/simulation/scenario.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "engine_core/executor/kv_cache_size.h"
#include "tests/simulation/sim_executor.h"

namespace tandem {
namespace {

constexpr TokenId kEos = 2;

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

class Drawing {
 public:
  explicit Drawing(SimRandom* random) : random_(random) {}

  Scenario Draw(uint64_t seed);

 private:
  void DrawConfig();
  void DrawWindow(uint64_t seed);
  void DrawOutside(uint64_t seed);
  void DrawDrafter(uint64_t seed);
  void DrawPace(uint64_t seed);
  void DrawImages(uint64_t seed);
  std::vector<TokenId> DrawPrompt(int32_t max_tokens);
  void DrawStream();

  SimRandom* random_;
  Scenario drawn_;
  std::vector<std::vector<TokenId>> documents_;  // prompts share their beginnings
};

Scenario Drawing::Draw(uint64_t seed) {
  DrawConfig();
  if (seed % 4 == 3) DrawWindow(seed);
  const int32_t num_documents = random_->Between(1, 4);
  for (int32_t i = 0; i < num_documents; ++i) {
    documents_.push_back(DrawPrompt(drawn_.limits.max_model_len - 2));
  }
  const int32_t num_requests = random_->Between(1, 30);
  for (int32_t i = 0; i < num_requests; ++i) DrawStream();
  if (seed % 4 == 0) DrawOutside(seed);
  if (HasDrafter(seed)) DrawDrafter(seed);
  if (seed % 5 == 2) DrawPace(seed);
  if (seed % 3 == 1) DrawImages(seed);
  return std::move(drawn_);
}

void Drawing::DrawConfig() {
  drawn_.limits.block_size = 1 << random_->Between(0, 3);
  drawn_.limits.max_model_len = random_->Between(4, 64);
  const int32_t min_blocks =
      (drawn_.limits.max_model_len + drawn_.limits.block_size - 1) / drawn_.limits.block_size;
  drawn_.limits.num_blocks =
      1 + min_blocks +
      (random_->Chance(0.7) ? random_->Between(0, min_blocks) : random_->Between(0, 200));
  drawn_.limits.max_num_seqs = random_->Between(1, 10);
  drawn_.limits.max_num_batched_tokens =
      random_->Chance(0.5) ? random_->Between(1, 16) : random_->Between(16, 200);
  drawn_.limits.vocab_size = random_->Between(8, 60);

  SchedulerConfig& scheduler = drawn_.options.scheduler;
  scheduler.policy = random_->Chance(0.6)   ? SchedulingPolicy::kFcfs
                     : random_->Chance(0.6) ? SchedulingPolicy::kPriority
                                            : SchedulingPolicy::kShortestPrompt;
  scheduler.longest_prompt_wait_s = random_->Between(0, 1000);
  scheduler.max_num_active_seqs =
      random_->Chance(0.2) ? random_->Between(1, drawn_.limits.max_num_seqs) : 0;
  if (random_->Chance(0.2)) {
    scheduler.enable_chunked_prefill = false;
    drawn_.limits.max_num_batched_tokens =
        std::max(drawn_.limits.max_num_batched_tokens, drawn_.limits.max_model_len);
  } else if (random_->Chance(0.2)) {
    scheduler.max_num_scheduled_tokens = random_->Between(1, drawn_.limits.max_num_batched_tokens);
  }
  if (random_->Chance(0.2)) scheduler.long_prefill_token_threshold = random_->Between(1, 20);
  scheduler.long_prefill_token_threshold_adaptive = random_->Chance(0.5);
  scheduler.reserve_full_isl = random_->Chance(0.7);
  if (random_->Chance(0.2)) scheduler.prefill_schedule_interval = random_->Between(2, 5);
  drawn_.options.kv_cache.enable_prefix_caching = random_->Chance(0.85);
  if (random_->Chance(0.15)) drawn_.options.kv_cache.watermark = 0.05 * random_->Between(1, 8);
  drawn_.options.async_scheduling = random_->Chance(0.5);
  drawn_.options.kv_cache.enable_events =
      drawn_.options.kv_cache.enable_prefix_caching && random_->Chance(0.3);
  drawn_.options.shutdown_timeout_s = random_->Chance(0.5) ? 0 : 0.5;

  drawn_.arrival_chance = random_->Chance(0.5) ? 0.9 : 0.2;
  drawn_.abort_chance = random_->Chance(0.4) ? 0.1 : 0;
  drawn_.call_chance = random_->Chance(0.3) ? 0.1 : 0;
  drawn_.is_lossy = random_->Chance(0.15);
}

// A window, in a cache that holds little more than one request needs. Two models of three have
// layers without it as well; that is drawn from a generator of its own. Some have chunks.
void Drawing::DrawWindow(uint64_t seed) {
  LayerGroups& groups = drawn_.limits.groups;
  groups = LayerGroups::OfWindow(random_->Between(2, 1 + drawn_.limits.max_model_len));
  SimRandom draw(seed * 43);
  const auto up_to = [&](int32_t high) {
    return static_cast<int32_t>(1 + draw.Next() % static_cast<uint64_t>(high));
  };
  if (up_to(3) > 1) {
    groups.num_full = up_to(2);
    groups.num_local = up_to(3);
    if (up_to(4) == 1) groups.chunk = std::exchange(groups.window, 0);
  }
  const int32_t num_held = MaxHeldBlocks(CacheWithLimits({}, drawn_.limits));
  if (random_->Chance(0.8)) drawn_.limits.num_blocks = 1 + num_held + random_->Between(0, num_held);
  drawn_.limits.num_blocks = std::max(drawn_.limits.num_blocks, 1 + num_held);
}

// What requests wait for outside the engine: KV from a connector, grammars, places for adapters.
// Drawn from a generator of its own, so that everything else is the same with and without.
void Drawing::DrawOutside(uint64_t seed) {
  SimRandom draw(~seed);
  const auto one_in = [&](uint64_t n) { return draw.Next() % n == 0; };
  if (!one_in(4)) drawn_.connector_seed = draw.Next();
  if (one_in(2)) drawn_.options.scheduler.kv_load_failure_policy = KvLoadFailurePolicy::kRecompute;
  if (one_in(2)) drawn_.options.scheduler.max_loras = static_cast<int32_t>(1 + draw.Next() % 3);
  const bool with_grammars = one_in(2);
  for (auto& [id, stream] : drawn_.streams) {
    if (stream.refused) continue;
    if (drawn_.options.scheduler.max_loras > 0 && !one_in(3)) {
      stream.needs.adapter.id = static_cast<AdapterId>(1 + draw.Next() % 5);
      stream.needs.adapter.name = "lora" + std::to_string(stream.needs.adapter.id);
      stream.answer.clear();
      SolveStream(drawn_.limits, &stream);
      if (stream.fails_after) {
        stream.fails_after = std::min(*stream.fails_after, stream.answer.size() - 1);
      }
    }
    if (!with_grammars || !one_in(2)) continue;
    stream.needs.grammar = true;
    stream.grammar_fails = one_in(5);
  }
}

// Drawn from its own generator for the same reason.
void Drawing::DrawDrafter(uint64_t seed) {
  SimRandom draw(seed * 31);
  const auto up_to = [&](int32_t high) {
    return static_cast<int32_t>(draw.Next() % static_cast<uint64_t>(high + 1));
  };
  drawn_.drafter_seed = draw.Next();
  DraftConfig& drafts = drawn_.limits.drafts;
  drafts.num_speculative_tokens = 1 + up_to(4);
  drafts.num_lookahead_tokens = up_to(1) * drafts.num_speculative_tokens;
  drafts.num_input_slots = up_to(1) * up_to(2);
  drafts.pads_new_requests = up_to(1) == 1;
  drawn_.limits.max_num_batched_tokens += drafts.num_input_slots;
  // Drafts in flight after the window need room.
  const int32_t num_held = MaxHeldBlocks(CacheWithLimits({}, drawn_.limits));
  drawn_.limits.num_blocks = std::max(drawn_.limits.num_blocks, 1 + num_held);
}

// Likewise. Steps take what the clock moves while they are in flight.
void Drawing::DrawPace(uint64_t seed) {
  if (!drawn_.options.scheduler.enable_chunked_prefill) return;
  SimRandom draw(seed * 37);
  StepTimeLimit& limit = drawn_.options.scheduler.step_time_limit;
  limit.seconds = 0.001 * static_cast<double>(1 + draw.Next() % 20);
  limit.decode_steps = static_cast<double>(draw.Next() % 4);
  limit.most_decode_steps = static_cast<double>(draw.Next() % 24);
}

// Likewise. Prompts have images of one layout, so that their beginnings are the same or differ in
// an image alone. There are few images, and some of them stand in a prompt twice.
void Drawing::DrawImages(uint64_t seed) {
  SimRandom draw(seed * 41);
  const auto between = [&](int32_t low, int32_t high) {
    return low + static_cast<int32_t>(draw.Next() % static_cast<uint64_t>(high - low + 1));
  };
  const ExecutorLimits& limits = drawn_.limits;
  ImageLimits& images = drawn_.limits.images.emplace();
  images = {
      .token_id = 1, .patch_numbers = 2, .are_whole = between(0, 2) == 0, .slices_per_patch = 0.5};
  const int32_t num_scheduled = drawn_.options.scheduler.max_num_scheduled_tokens;
  const int32_t most = std::min({16, limits.max_num_batched_tokens - limits.drafts.num_input_slots,
                                 num_scheduled > 0 ? num_scheduled : 16});
  std::vector<ImageInput> layout;
  for (int32_t begin = between(0, 6); begin < limits.max_model_len; begin += between(0, 6)) {
    ImageInput& image = layout.emplace_back();
    image.begin = begin;
    image.num_tokens = between(1, most);
    const int32_t before = between(0, 3) == 0 ? between(0, image.num_tokens - 1) : 0;
    image.num_rows = image.num_tokens - before;
    image.runs = {{begin + before, image.num_rows}};
    begin = image.end();
  }
  for (auto& [id, stream] : drawn_.streams) {
    if (stream.refused || between(0, 4) == 0) continue;
    auto own = std::make_shared<RequestImages>();
    for (const ImageInput& place : layout) {
      if (place.end() > static_cast<int32_t>(stream.request.prompt_token_ids.size())) break;
      auto image = std::make_shared<ImageInput>(place);
      image->identifier = (between(0, 3) == 0 ? "b" : "a") + std::to_string(image->num_rows);
      image->key = image->identifier + "/" + std::to_string(image->num_rows);
      image->num_slices = NumSlices(images, image->num_rows);
      own->push_back(std::move(image));
    }
    if (own->empty()) continue;
    stream.needs.images = std::move(own);
    stream.answer.clear();
    SolveStream(limits, &stream);
    if (stream.fails_after) {
      stream.fails_after = std::min(*stream.fails_after, stream.answer.size() - 1);
    }
  }
  if (between(0, 2) > 0) drawn_.options.scheduler.image_time_limit.seconds = 0.001 * between(1, 9);
}

std::vector<TokenId> Drawing::DrawPrompt(int32_t max_tokens) {
  std::vector<TokenId> prompt;
  if (!documents_.empty() && random_->Chance(0.7)) {
    prompt = documents_[static_cast<size_t>(
        random_->Between(0, static_cast<int32_t>(documents_.size()) - 1))];
    prompt.resize(static_cast<size_t>(random_->Between(1, static_cast<int32_t>(prompt.size()))));
  }
  const int32_t room = max_tokens - static_cast<int32_t>(prompt.size());
  const int32_t num_own =
      random_->Between(prompt.empty() ? 1 : 0, std::max(1, random_->Chance(0.5) ? room : room / 4));
  for (int32_t i = 0; i < num_own && static_cast<int32_t>(prompt.size()) < max_tokens; ++i) {
    prompt.push_back(random_->Between(0, drawn_.limits.vocab_size - 1));
  }
  return prompt;
}

void Drawing::DrawStream() {
  Stream stream;
  wire::EngineCoreRequest& request = stream.request;
  request.request_id = "r" + std::to_string(drawn_.order.size());
  request.client_index = random_->Between(0, 2);
  request.arrival_time = random_->Between(0, 5);
  request.priority = random_->Between(0, 3);
  request.prompt_token_ids = DrawPrompt(drawn_.limits.max_model_len - 1);
  if (random_->Chance(0.1)) request.cache_salt = random_->Chance(0.5) ? "a" : "b";
  wire::SamplingParams& params = request.sampling_params;
  params.max_tokens = random_->Chance(0.7) ? random_->Between(1, 12)
                                           : random_->Between(1, drawn_.limits.max_model_len);
  params.min_tokens = random_->Chance(0.2) ? random_->Between(0, params.max_tokens) : 0;
  if (random_->Chance(0.7)) params.eos_token_id = kEos;
  if (random_->Chance(0.3))
    params.stop_token_ids = {random_->Between(0, drawn_.limits.vocab_size - 1)};
  if (random_->Chance(0.1)) params.skip_reading_prefix_cache = true;
  if (random_->Chance(0.1))
    params.repetition_detection = {random_->Between(1, 3), random_->Between(0, 2),
                                   random_->Between(0, 3)};
  if (random_->Chance(0.05)) {
    stream.refused = true;
    switch (random_->Between(0, 2)) {
      case 0:
        request.prompt_token_ids.push_back(drawn_.limits.vocab_size);
        break;
      case 1:
        request.prompt_token_ids.assign(static_cast<size_t>(drawn_.limits.max_model_len), 1);
        break;
      default:
        params.max_tokens = 0;
    }
  } else {
    SolveStream(drawn_.limits, &stream);
    if (random_->Chance(0.05)) {
      stream.fails_after =
          static_cast<size_t>(random_->Between(0, static_cast<int32_t>(stream.answer.size()) - 1));
    }
  }
  drawn_.order.push_back(request.request_id);
  drawn_.streams.emplace(request.request_id, std::move(stream));
}

}  // namespace

Scenario DrawScenario(uint64_t seed, SimRandom* random) { return Drawing(random).Draw(seed); }

void SolveStream(const ExecutorLimits& limits, Stream* stream) {
  const wire::SamplingParams& params = stream->request.sampling_params;
  uint64_t hash = stream->first_hash();
  const std::vector<TokenId>& prompt = stream->request.prompt_token_ids;
  for (int32_t p = 0; p < static_cast<int32_t>(prompt.size()); ++p) {
    hash = ExtendPrefixHash(hash, InputAt(stream->needs.images.get(), prompt, p));
  }
  std::vector<TokenId>& answer = stream->answer;
  stream->stop_reason = {};
  for (;;) {
    const TokenId token = NextSimToken(hash, limits.vocab_size);
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
    if (num_tokens == static_cast<size_t>(limits.max_model_len) ||
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

std::string Scenario::Describe() const {
  const SchedulerConfig& s = options.scheduler;
  std::ostringstream text;
  text << "blocks " << limits.num_blocks << " x " << limits.block_size << ", seqs "
       << limits.max_num_seqs << ", batch " << limits.max_num_batched_tokens << ", length "
       << limits.max_model_len << ", "
       << "policy " << static_cast<int>(s.policy) << ", chunked " << s.enable_chunked_prefill
       << ", threshold " << s.long_prefill_token_threshold << "/"
       << s.long_prefill_token_threshold_adaptive << ", reserve " << s.reserve_full_isl
       << ", interval " << s.prefill_schedule_interval << ", step " << s.step_time_limit.seconds
       << "/" << s.step_time_limit.decode_steps << "/" << s.step_time_limit.most_decode_steps
       << " image " << s.image_time_limit.seconds << ", caching "
       << options.kv_cache.enable_prefix_caching << ", async " << options.async_scheduling
       << ", watermark " << options.kv_cache.watermark << ", window " << limits.groups.window
       << " chunk " << limits.groups.chunk << " groups " << limits.groups.num_full << "+"
       << limits.groups.num_local << ", connector " << connector_seed.has_value() << " recomputes "
       << (s.kv_load_failure_policy == KvLoadFailurePolicy::kRecompute) << ", adapters "
       << s.max_loras << ", drafts " << limits.drafts.num_speculative_tokens << " ahead "
       << limits.drafts.num_lookahead_tokens << " slots " << limits.drafts.num_input_slots
       << " padded " << limits.drafts.pads_new_requests << ", images " << limits.images.has_value()
       << " whole " << (limits.images && limits.images->are_whole) << ", requests " << order.size();
  return text.str();
}

}  // namespace tandem
