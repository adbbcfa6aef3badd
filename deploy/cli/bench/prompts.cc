#include "deploy/cli/bench/prompts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/random.h"
#include "common/read_file.h"
#include "common/strings.h"
#include "deploy/cli/bench/prompt_words.h"
#include "deploy/cli/bench/random_image.h"
#include "deploy/cli/bench/verse.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// Ids that any vocabulary has and that are unlikely to be special.
constexpr TokenId kFirstSafeId = 100, kNumSafeIds = 400;
constexpr int64_t kMaxRandomId = 10000;
constexpr int64_t kMaxDatasetBytes = int64_t{4} << 30;

// Conversations outside these bounds are left out, as is usual with this file.
constexpr int64_t kMinConversationTokens = 4;
constexpr int64_t kMaxConversationPrompt = 1024;
constexpr int64_t kMaxConversationTokens = 2048;

struct Maker {
  const BenchServeOptions& options;
  const Tokenizer* tokenizer;
  bool takes_token_ids;
  PromptWords words;

  Maker(const BenchServeOptions& o, const Tokenizer* t, bool ids)
      : options(o), tokenizer(t), takes_token_ids(ids), words(t, MixBits(Seed(o))) {}

  static uint64_t Seed(const BenchServeOptions& o) { return static_cast<uint64_t>(o.seed); }
  bool makes_ids() const { return tokenizer == nullptr && takes_token_ids; }

  std::vector<TokenId> Draw(int64_t count) {
    if (!makes_ids()) return words.Draw(count);
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < count; ++i) {
      ids.push_back(kFirstSafeId + static_cast<TokenId>(words.Below(kNumSafeIds)));
    }
    return ids;
  }

  BenchPrompt FromIds(std::vector<TokenId> ids, int64_t output_tokens) {
    BenchPrompt prompt;
    prompt.output_tokens = output_tokens;
    if (makes_ids()) {
      prompt.prompt_tokens = static_cast<int64_t>(ids.size());
      prompt.token_ids = std::move(ids);
    } else {
      prompt.text = words.Text(std::move(ids));
      prompt.prompt_tokens = words.CountTokens(prompt.text);
    }
    return prompt;
  }

  BenchPrompt FromText(std::string text, int64_t output_tokens) const {
    BenchPrompt prompt;
    prompt.prompt_tokens = words.CountTokens(text);
    prompt.output_tokens = output_tokens;
    prompt.text = std::move(text);
    return prompt;
  }

  template <class T>
  void Shuffle(std::vector<T>& items) {
    if (options.disable_shuffle) return;
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[words.Below(i)]);
  }

  // Cuts to the requested count, or repeats prompts in random order up to it.
  void FitCount(std::vector<BenchPrompt>& prompts) {
    const auto wanted = static_cast<size_t>(options.num_prompts);
    if (prompts.size() > wanted) prompts.resize(wanted);
    if (options.no_oversample) return;
    const size_t have = prompts.size();
    while (prompts.size() < wanted) prompts.push_back(prompts[words.Below(have)]);
  }

  // Uniform over [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(words.Below(static_cast<uint64_t>(high - low + 1)));
  }

  int64_t Around(int64_t length, int64_t least) {
    const auto exact = static_cast<double>(length);
    const auto low = static_cast<int64_t>(std::floor(exact * (1 - options.random_range_ratio)));
    const auto high = static_cast<int64_t>(std::ceil(exact * (1 + options.random_range_ratio)));
    return Between(std::max(low, least), std::max(high, least));
  }
};

StatusOr<std::vector<BenchPrompt>> MakeRandom(Maker& maker) {
  const BenchServeOptions& options = maker.options;
  // Special tokens that the server adds count towards the requested length.
  const int64_t input_len =
      std::max<int64_t>(options.input_len.value_or(options.random_input_len) -
                            (maker.makes_ids() ? 0 : maker.words.num_special_tokens()),
                        options.random_prefix_len > 0 ? 0 : 1);
  const int64_t output_len = options.output_len.value_or(options.random_output_len);
  const std::vector<TokenId> prefix = maker.Draw(options.random_prefix_len);
  std::vector<BenchPrompt> prompts;
  for (int64_t i = 0; i < options.num_prompts; ++i) {
    std::vector<TokenId> ids = prefix;
    const std::vector<TokenId> own =
        maker.Draw(maker.Around(input_len, options.random_prefix_len > 0 ? 0 : 1));
    ids.insert(ids.end(), own.begin(), own.end());
    prompts.push_back(maker.FromIds(std::move(ids), maker.Around(output_len, 1)));
  }
  return prompts;
}

// random_batch_size texts become one request, after those that all requests have.
std::vector<BenchPrompt> Batched(std::vector<BenchPrompt> prompts, int64_t batch_size,
                                 const BenchPrompt* query) {
  std::vector<BenchPrompt> batches;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (i % static_cast<size_t>(batch_size) == 0) {
      batches.emplace_back();
      if (query != nullptr) batches.back().inputs.push_back(query->text);
    }
    BenchPrompt& batch = batches.back();
    batch.inputs.push_back(std::move(prompts[i].text));
    batch.prompt_tokens += prompts[i].prompt_tokens;
    if (query != nullptr) batch.prompt_tokens += query->prompt_tokens;
  }
  return batches;
}

StatusOr<std::vector<BenchPrompt>> MakeRandomOrBatched(Maker& maker) {
  ASSIGN_OR_RETURN(std::vector<BenchPrompt> prompts, MakeRandom(maker));
  if (maker.options.random_batch_size == 1) return prompts;
  return Batched(std::move(prompts), maker.options.random_batch_size, nullptr);
}

// One query, of half the length, for all documents.
StatusOr<std::vector<BenchPrompt>> MakeRandomRerank(Maker& maker) {
  const BenchServeOptions& options = maker.options;
  const int64_t input_len = options.input_len.value_or(options.random_input_len);
  const int64_t room = input_len - maker.words.num_special_tokens();
  const int64_t query_len = std::max<int64_t>(1, room / 2);
  const BenchPrompt query = maker.FromIds(maker.Draw(maker.Around(query_len, 1)), 0);
  std::vector<BenchPrompt> documents;
  for (int64_t i = 0; i < options.num_prompts; ++i) {
    const int64_t length = maker.Around(std::max<int64_t>(1, room - query_len), 1);
    documents.push_back(maker.FromIds(maker.Draw(length), 0));
  }
  return Batched(std::move(documents), options.random_batch_size, &query);
}

StatusOr<std::vector<BenchPrompt>> MakeRandomMm(Maker& maker) {
  const BenchServeOptions& options = maker.options;
  ASSIGN_OR_RETURN(const std::vector<ImageBucket> buckets,
                   ParseImageBuckets(options.random_mm_bucket_config));
  ASSIGN_OR_RETURN(const int64_t limit, ParseImageLimit(options.random_mm_limit_mm_per_prompt));
  const auto base = static_cast<double>(options.random_mm_base_items_per_request);
  const double ratio = options.random_mm_num_mm_items_range_ratio;
  const auto least = static_cast<int64_t>(std::floor(base * (1 - ratio)));
  const auto most = std::min(limit, static_cast<int64_t>(std::ceil(base * (1 + ratio))));
  double total = 0;
  for (const ImageBucket& bucket : buckets) total += bucket.weight;
  ASSIGN_OR_RETURN(std::vector<BenchPrompt> prompts, MakeRandom(maker));
  for (BenchPrompt& prompt : prompts) {
    const int64_t count = maker.Between(least, std::max(least, most));
    for (int64_t i = 0; i < count; ++i) {
      constexpr uint64_t kSteps = 1 << 20;
      double drawn = total * static_cast<double>(maker.words.Below(kSteps)) / kSteps;
      const ImageBucket* bucket = buckets.data();
      while (bucket != &buckets.back() && drawn >= bucket->weight) drawn -= (bucket++)->weight;
      prompt.images.push_back(
          RandomImageUrl(bucket->height, bucket->width, maker.words.Below(uint64_t{1} << 62)));
    }
  }
  return prompts;
}

StatusOr<std::vector<BenchPrompt>> MakePrefixRepetition(Maker& maker) {
  const BenchServeOptions& options = maker.options;
  const int64_t per_prefix = options.num_prompts / options.prefix_repetition_num_prefixes;
  std::vector<BenchPrompt> prompts;
  for (int64_t p = 0; p < options.prefix_repetition_num_prefixes; ++p) {
    const std::vector<TokenId> prefix = maker.Draw(options.prefix_repetition_prefix_len);
    for (int64_t i = 0; i < per_prefix; ++i) {
      std::vector<TokenId> ids = prefix;
      const std::vector<TokenId> suffix =
          maker.Draw(std::max<int64_t>(options.prefix_repetition_suffix_len, ids.empty() ? 1 : 0));
      ids.insert(ids.end(), suffix.begin(), suffix.end());
      prompts.push_back(maker.FromIds(
          std::move(ids), options.output_len.value_or(options.prefix_repetition_output_len)));
    }
  }
  maker.Shuffle(prompts);
  return prompts;
}

StatusOr<std::vector<BenchPrompt>> MakeSonnet(Maker& maker) {
  const BenchServeOptions& options = maker.options;
  const int64_t input_len = options.input_len.value_or(options.sonnet_input_len);
  const int64_t prefix_len = std::min(options.sonnet_prefix_len, input_len);
  const auto seed = Maker::Seed(options);
  // Whole lines up to the length: first the lines that all prompts share, then the prompt's own.
  const auto add_lines = [&](std::string* text, int64_t wanted, uint64_t line_number) {
    int64_t count = maker.words.CountTokens(*text);
    while (count < wanted) {
      // Lines end in a line feed, which no token crosses, so their counts add up.
      const std::string line = VerseLine(seed, line_number++);
      count +=
          std::max<int64_t>(1, maker.words.CountTokens(line) - maker.words.num_special_tokens());
      *text += line;
    }
  };
  std::string prefix = "Go on in the manner of these lines:\n";
  add_lines(&prefix, prefix_len, 0);
  constexpr uint64_t kLinesPerPrompt = 1 << 20;  // so that prompts do not share lines
  std::vector<BenchPrompt> prompts;
  for (int64_t i = 0; i < options.num_prompts; ++i) {
    std::string text = prefix;
    add_lines(&text, input_len, kLinesPerPrompt * static_cast<uint64_t>(i + 1));
    prompts.push_back(
        maker.FromText(std::move(text), options.output_len.value_or(options.sonnet_output_len)));
  }
  return prompts;
}

StatusOr<std::string> ReadDataset(const BenchServeOptions& options) {
  StatusOr<std::string> text = ReadFile(options.dataset_path, kMaxDatasetBytes);
  return text.ok() ? std::move(text) : text.status().WithContext("--dataset-path");
}

// The first two turns of a conversation; empty strings when it has fewer.
std::pair<std::string, std::string> FirstTurns(const Json& entry) {
  const auto turns = entry.is_object() ? entry.find("conversations") : entry.end();
  if (!entry.is_object() || turns == entry.end() || !turns->is_array() || turns->size() < 2) {
    return {};
  }
  const auto value_of = [](const Json& turn) {
    const auto value = turn.is_object() ? turn.find("value") : turn.end();
    return turn.is_object() && value != turn.end() && value->is_string() ? value->get<std::string>()
                                                                         : std::string();
  };
  return {value_of((*turns)[0]), value_of((*turns)[1])};
}

StatusOr<std::vector<BenchPrompt>> MakeShareGpt(Maker& maker) {
  const BenchServeOptions& options = maker.options;
  ASSIGN_OR_RETURN(const std::string text, ReadDataset(options));
  const Json entries = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!entries.is_array()) {
    return InvalidArgumentError(options.dataset_path + " is not a JSON list of conversations");
  }
  const std::optional<int64_t> output_len =
      options.output_len ? options.output_len : options.sharegpt_output_len;
  std::vector<const Json*> order;
  for (const Json& entry : entries) order.push_back(&entry);
  maker.Shuffle(order);
  std::vector<BenchPrompt> prompts;
  for (const Json* entry : order) {
    if (prompts.size() == static_cast<size_t>(options.num_prompts)) break;
    auto [question, reply] = FirstTurns(*entry);
    if (question.empty()) continue;
    const int64_t asked = output_len.value_or(maker.words.CountTokens(reply));
    BenchPrompt prompt = maker.FromText(std::move(question), asked);
    const int64_t length = prompt.prompt_tokens;
    if (length < kMinConversationTokens || length > kMaxConversationPrompt ||
        length + asked > kMaxConversationTokens ||
        (!output_len && asked < kMinConversationTokens)) {
      continue;
    }
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) {
    return InvalidArgumentError(options.dataset_path + " has no usable conversation");
  }
  maker.FitCount(prompts);
  return prompts;
}

StatusOr<std::vector<BenchPrompt>> MakeCustom(Maker& maker) {
  const BenchServeOptions& options = maker.options;
  ASSIGN_OR_RETURN(const std::string text, ReadDataset(options));
  const int64_t output_len = options.output_len.value_or(options.custom_output_len);
  std::vector<BenchPrompt> prompts;
  int line_number = 0;
  for (const std::string_view line : Split(text, '\n')) {
    ++line_number;
    if (StripAscii(line).empty()) continue;
    const std::string where = options.dataset_path + " line " + std::to_string(line_number);
    const Json item = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!item.is_object() || !item.contains("prompt") || !item["prompt"].is_string()) {
      return InvalidArgumentError(where + " is not a JSON object with a \"prompt\"");
    }
    int64_t asked = output_len;
    if (asked < 0) {
      if (!item.contains("output_tokens") || !item["output_tokens"].is_number_integer() ||
          item["output_tokens"].get<int64_t>() < 1) {
        return InvalidArgumentError(where + " has no \"output_tokens\" of at least 1");
      }
      asked = item["output_tokens"].get<int64_t>();
    }
    prompts.push_back(maker.FromText(item["prompt"].get<std::string>(), asked));
  }
  if (prompts.empty()) return InvalidArgumentError(options.dataset_path + " has no prompt");
  maker.Shuffle(prompts);
  maker.FitCount(prompts);
  return prompts;
}

struct Dataset {
  std::string_view name;
  StatusOr<std::vector<BenchPrompt>> (*make)(Maker& maker);
};
constexpr Dataset kDatasets[] = {
    {"random", MakeRandomOrBatched},
    {"random-mm", MakeRandomMm},
    {"random-rerank", MakeRandomRerank},
    {"sharegpt", MakeShareGpt},
    {"sonnet", MakeSonnet},
    {"prefix_repetition", MakePrefixRepetition},
    {"custom", MakeCustom},
};

}  // namespace

StatusOr<std::vector<BenchPrompt>> MakePrompts(const BenchServeOptions& options,
                                               const Tokenizer* tokenizer, bool takes_token_ids) {
  Maker maker(options, tokenizer, takes_token_ids);
  for (const Dataset& dataset : kDatasets) {
    if (dataset.name == options.dataset_name) return dataset.make(maker);
  }
  return InvalidArgumentError("--dataset-name is '" + options.dataset_name + "'");
}

std::vector<TokenId> RandomTokenIds(int64_t count, int64_t vocab_size, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto limit = static_cast<uint64_t>(std::min(kMaxRandomId, vocab_size));
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(random() % limit));
  return ids;
}

}  // namespace tandem
