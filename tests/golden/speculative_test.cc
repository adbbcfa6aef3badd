// vLLM 0.33's n-gram search and its reading of --speculative-config; with TANDEM_GOLDENS, whole
// runs of a small model with their counts of drafts.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine_core/speculation/ngram_index.h"
#include "engine_core/speculation/speculative_config.h"
#include "engine_core/speculation/suffix_drafter.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/gzip/gzip_lines.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<TokenId>;

const std::string kHere = std::string(TANDEM_GOLDEN_DIR) + "/speculative/";

// The drafts after all tokens, which are taken in in two pieces.
Tokens Drafts(const Tokens& tokens, int32_t min, int32_t max, size_t k, size_t max_model_len) {
  NgramIndex index(min, max, 7);
  index.Find(std::span(tokens).first(tokens.size() / 2));
  const int32_t place = index.Find(tokens);
  CHECK(index.Find(tokens) == place);
  if (place < 0 || tokens.size() >= max_model_len) return {};
  const auto begin = tokens.begin() + place;
  const size_t most =
      std::min({k, max_model_len - tokens.size(), static_cast<size_t>(tokens.end() - begin)});
  return {begin, begin + static_cast<ptrdiff_t>(most)};
}

TEST_CASE("vLLM's n-gram search: the same drafts") {
  const Json golden = ReadGzipJson(kHere + "ngram.json");
  CHECK(golden["cases"].size() == 320);
  for (const Json& c : golden["cases"]) {
    INFO(c.dump());
    CHECK(Drafts(c[0], c[1], c[2], c[3], c[4]) == c[5].get<Tokens>());
  }
  for (const Json& batch : golden["batches"]) {
    for (size_t i = 0; i < batch["tokens"].size(); ++i) {
      INFO(batch.dump() << " " << i);
      const bool sampled = !batch["sampled"][i].empty();
      const Tokens drafts = Drafts(batch["tokens"][i], batch["min_n"], batch["max_n"], batch["k"],
                                   batch["max_model_len"]);
      CHECK((sampled ? drafts : Tokens()) == batch["drafts"][i].get<Tokens>());
    }
  }
}

// Configurations that vLLM takes and this engine does not: the method or way to verify is not
// built.
bool IsBuilt(const Json& resolved) {
  const auto is_one_of = [](const Json& word, std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, word.get<std::string>()) != words.end();
  };
  return is_one_of(resolved["method"],
                   {"ngram", "ngram_gpu", "suffix", "draft_model", "eagle", "eagle3"}) &&
         !resolved["parallel_drafting"].get<bool>() &&
         is_one_of(resolved["rejection_sample_method"], {"standard", "block"});
}

// Models that are refused when they are read, and a method that vLLM has not.
bool IsReadLater(const Json& config) {
  const std::string model = config.value("model", "");
  // vLLM 0.33 has dropped the one; the target's checkpoint has no layer for the other.
  const std::string method = config.value("method", "");
  if (method == "medusa" || method == "mtp") return true;
  return model == "ROOT/nowhere" || model == "OTHER_VOCAB" ||
         config.value("max_model_len", 0) > 512;
}

TEST_CASE("vLLM's --speculative-config: the same is taken, the same is refused") {
  const Json golden = ReadGzipJson(kHere + "config.json");
  size_t num_taken = 0;
  for (const Json& c : golden["cases"]) {
    INFO(c.dump());
    const auto config = ParseSpeculativeConfig(c["config"].dump());
    if (IsReadLater(c["config"])) continue;
    const bool expected = c.contains("resolved") && IsBuilt(c["resolved"]);
    CHECK(config.ok() == expected);
    if (!config.ok() || !expected) {
      CHECK(config.status().message().starts_with("--speculative-config: "));
      continue;
    }
    ++num_taken;
    const Json& resolved = c["resolved"];
    CHECK(config->num_speculative_tokens == resolved["num_speculative_tokens"]);
    if (config->method != DraftMethod::kNgram) continue;
    CHECK(config->prompt_lookup_min == resolved["prompt_lookup_min"]);
    CHECK(config->prompt_lookup_max == resolved["prompt_lookup_max"]);
  }
  CHECK(num_taken >= 10);
}

TEST_CASE("vLLM takes null in --speculative-config for a key that is not there") {
  const auto parsed = ParseSpeculativeConfig(
      R"({"method": null, "model": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": null,
          "prompt_lookup_max": 4, "enforce_eager": null, "draft_tensor_parallel_size": null,
          "max_model_len": null, "num_speculative_tokens_per_batch_size": null})");
  INFO(parsed.status().ToString());
  REQUIRE(parsed.ok());
  CHECK(parsed->method == DraftMethod::kNgram);
  CHECK(parsed->prompt_lookup_min == 4);
  CHECK(parsed->keys_without_effect.empty());
  CHECK(ParseSpeculativeConfig(R"({"method": "suffix", "num_speculative_tokens": null})")
            ->num_speculative_tokens == 24);
  CHECK(ParseSpeculativeConfig(R"({"method": "ngram", "num_speculative_tokens": null})")
            .status()
            .message() == "--speculative-config: num_speculative_tokens is missing");
  for (const char* key : {"adaptive", "draft_sample_method", "no_such_key"}) {
    CAPTURE(key);
    CHECK_FALSE(ParseSpeculativeConfig(R"({"method": "ngram", "num_speculative_tokens": 3, ")" +
                                       std::string(key) + "\": null}")
                    .ok());
  }
}

TEST_CASE("what --speculative-config has no use for is named") {
  const auto unused = [](const std::string& text) {
    const auto config = ParseSpeculativeConfig(text);
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    return config->keys_without_effect;
  };
  CHECK(
      unused(R"({"model": "folder", "num_speculative_tokens": 3, "enforce_eager": true})").empty());
  CHECK(unused(R"({"method": "ngram", "num_speculative_tokens": 3, "enforce_eager": true,
                   "max_model_len": 9})") ==
        std::vector<std::string>{"enforce_eager", "max_model_len"});
}

// Replays one proposer; counts proposals and those that differ.
void ReplaySuffix(const Json& trace, int* num_proposals, int* num_different) {
  constexpr int32_t kNumSlots = 16;
  SuffixDrafter drafter(kNumSlots, {.max_tree_depth = trace["max_tree_depth"],
                                    .max_cached_requests = trace["max_cached_requests"],
                                    .max_spec_factor = trace["max_spec_factor"],
                                    .min_token_prob = trace["min_token_prob"]});
  const auto max_model_len = trace["max_model_len"].get<int64_t>();
  std::map<std::string, Tokens> texts;
  std::map<std::string, int32_t> slots;
  for (const Json& step : trace["steps"]) {
    for (size_t i = 0; i < step["batch"].size(); ++i) {
      if (step["sampled"][i].empty()) continue;
      const std::string id = step["batch"][i];
      if (!slots.contains(id)) {
        texts[id] = trace["prompts"][id].get<Tokens>();
        slots[id] = static_cast<int32_t>(slots.size());
        drafter.Begin(slots[id], static_cast<int32_t>(texts[id].size()));
      }
      Tokens& text = texts[id];
      for (const Json& token : step["sampled"][i]) text.push_back(token);
      Tokens drafts;
      const int64_t room = max_model_len - static_cast<int64_t>(text.size()) - 1;
      if (room >= 0) {
        const int64_t most = std::min(room, trace["num_speculative_tokens"].get<int64_t>());
        drafter.Propose(slots[id], text, static_cast<int32_t>(most), &drafts);
      }
      ++*num_proposals;
      if (drafts != step["drafts"][i].get<Tokens>()) ++*num_different;
    }
  }
}

// The library that vLLM uses resolves some ties of equally frequent tokens by the history of its
// tree; ours always takes the token that was that frequent first.
TEST_CASE("vLLM's suffix decoding: the same drafts but for some ties") {
  int num_proposals = 0, num_different = 0;
  const Json golden = ReadGzipJson(kHere + "suffix.json");
  for (const Json& trace : golden["traces"]) {
    ReplaySuffix(trace, &num_proposals, &num_different);
  }
  CHECK(num_proposals > 600);
  CHECK(num_different <= 6);
}

// Runs all prompts together and compares texts and counts.
void CompareRun(const std::string& folder, const Json& golden, const Json& method,
                const SpeculativeConfig& speculation) {
  EngineDriverOptions options;
  options.model_dir = folder + "target";
  options.speculation = speculation;
  options.num_blocks = 256;
  options.max_num_seqs = 16;
  EngineDriver engine(options);
  for (const Json& prompt : golden["prompts"]) {
    engine.Add(prompt["index"].dump(), prompt["prompt_ids"], GreedyParams(48));
  }
  engine.RunAll();
  for (const Json& prompt : golden["prompts"]) {
    INFO(method["method"] << " prompt " << prompt["index"]);
    const Transcript& got = engine.transcript(prompt["index"].dump());
    CHECK(got.token_ids == prompt["greedy_ids"].get<Tokens>());
  }
  const Json& totals = method["totals"];
  INFO(method["method"] << " " << totals.dump());
  const auto stats = engine.scheduler().TakeStats().spec_decoding_stats;
  REQUIRE(stats.has_value());
  CHECK(stats->num_drafts == totals["num_drafts"]);
  CHECK(stats->num_draft_tokens == totals["num_draft_tokens"]);
  CHECK(stats->num_accepted_tokens == totals["num_accepted_tokens"]);
  CHECK(stats->num_accepted_tokens_per_pos ==
        totals["accepted_per_pos"].get<std::vector<int64_t>>());
}

TEST_CASE("vLLM's greedy runs: the same texts and counts") {
  const auto more = WholeGoldens();
  if (!more) {
    WARN("SKIPPED: TANDEM_GOLDENS is not set");
    return;
  }
  const std::string folder = *more + "/speculative/";
  const Json golden = ReadGzipJson(folder + "greedy_traces.json");
  size_t num_runs = 0;
  for (const Json& method : golden["methods"]) {
    const std::string name = method["method"];
    SpeculativeConfig config = {.num_speculative_tokens = method["num_speculative_tokens"],
                                .adaptive = false};
    if (name.starts_with("ngram_")) {
      config.method = DraftMethod::kNgram;
      config.prompt_lookup_min = name[6] - '0';
      config.prompt_lookup_max = name[8] - '0';
    } else if (name == "draft_model") {
      config.method = DraftMethod::kDraftModel;
      config.model = folder + "draft";
    } else if (name == "eagle" || name == "eagle3") {
      config.method = name == "eagle" ? DraftMethod::kEagle : DraftMethod::kEagle3;
      config.model = folder + name;
    } else {
      FAIL(name);
    }
    CompareRun(folder, golden, method, config);
    ++num_runs;
  }
  CHECK(num_runs == 8);
}

}  // namespace
}  // namespace tandem
