// What text costs the frontend: encoding, detokenizing, stop strings and a chat template.
// Run: build/release/bench/bench_text. Bytes per second and items (tokens) per second are reported.

#include <benchmark/benchmark.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "frontend/chat/chat_template.h"
#include "frontend/text/detokenizer.h"
#include "frontend/text/encoded_text_cache.h"
#include "frontend/text/stop_strings.h"
#include "frontend/text/tokenizer.h"

namespace tandem {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(TANDEM_GOLDEN_DIR "/" + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::shared_ptr<const Tokenizer> LoadTokenizer(const std::string& name) {
  return Tokenizer::Load(TANDEM_GOLDEN_DIR "/tokenizers/" + name).value();
}

// Words in random order: words repeat often, sentences hardly ever.
std::string Prose(size_t num_bytes) {
  static const std::vector<std::string> kWords = {
      "the",  "server", "answers", "of",    "a",     "small", "request", "and",   "writes",
      "42",   "tokens", "don't",   "river", "quick", "light", "between", "house", "is",
      "you",  "that",   "It's",    "was",   "for",   "on",    "are",     "with",  "as",
      "they", "at",     "be",      "this",  "have",  "from",  "word",    "what",  "some"};
  std::mt19937 random(1);
  std::string text;
  while (text.size() < num_bytes) {
    text += kWords[random() % kWords.size()];
    text += random() % 12 == 0 ? ".\n" : random() % 9 == 0 ? ", " : " ";
  }
  return text;
}

void Encode(benchmark::State& state, const std::string& name) {
  const auto tokenizer = LoadTokenizer(name);
  const std::string text = Prose(static_cast<size_t>(state.range(0)));
  int64_t num_tokens = 0;
  for (auto _ : state) {
    const auto ids = tokenizer->Encode(text, false);
    num_tokens += static_cast<int64_t>(ids->size());
    benchmark::DoNotOptimize(ids->data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.SetItemsProcessed(num_tokens);
}
BENCHMARK_CAPTURE(Encode, gpt2, "gpt2")->Arg(1 << 20);
BENCHMARK_CAPTURE(Encode, llama3, "llama3")->Arg(1 << 10)->Arg(1 << 20);
BENCHMARK_CAPTURE(Encode, qwen2, "qwen2")->Arg(1 << 20);
BENCHMARK_CAPTURE(Encode, deepseek_v3, "deepseek_v3")->Arg(1 << 20);

// A chat of some 100,000 tokens gets one more turn of 60 words, with what is known of it and anew.
void EncodeGrownChat(benchmark::State& state, bool cached) {
  const auto tokenizer = LoadTokenizer("qwen2");
  std::string chat;
  for (int turn = 0; turn < 40; ++turn) chat += "<|im_start|>user\n" + Prose(5500) + "<|im_end|>\n";
  const std::string next = "<|im_start|>user\n" + Prose(300) + "<|im_end|>\n";
  EncodedTextCache cache(64 << 20);
  const auto before = tokenizer->Encode(chat, false, &cache).value();
  int64_t turn = 0;
  for (auto _ : state) {
    const std::string grown = chat + next + std::to_string(turn++);
    const auto ids = tokenizer->Encode(grown, false, cached ? &cache : nullptr);
    benchmark::DoNotOptimize(ids->data());
  }
  state.counters["tokens"] = static_cast<double>(before.size());
}
BENCHMARK_CAPTURE(EncodeGrownChat, anew, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(EncodeGrownChat, cached, true)->Unit(benchmark::kMicrosecond);

void Detokenize(benchmark::State& state, const std::string& text) {
  const auto tokenizer = LoadTokenizer("llama3");
  const auto ids = tokenizer->Encode(text, false).value();
  std::string delta;
  for (auto _ : state) {
    Detokenizer detokenizer(*tokenizer, {}, {});
    for (const TokenId id : ids) {
      delta.clear();
      detokenizer.Append(id, &delta);
      benchmark::DoNotOptimize(delta.data());
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(ids.size()));
}
BENCHMARK_CAPTURE(Detokenize, prose, Prose(100'000));
BENCHMARK_CAPTURE(Detokenize, emoji, [] {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "👩‍👩‍👧 ok ";
  return text;
}());

void FeedStopStrings(benchmark::State& state) {
  const auto tokenizer = LoadTokenizer("llama3");
  std::vector<std::string> deltas;
  const auto ids = tokenizer->Encode(Prose(100'000), false);
  for (const TokenId id : ids.value()) {
    deltas.emplace_back(tokenizer->TokenBytes(id));
  }
  std::string released;
  for (auto _ : state) {
    StopStrings stop({"</s>", "\n\nHuman:", "###", "the end of it"}, false);
    for (const std::string& delta : deltas) {
      released.clear();
      benchmark::DoNotOptimize(stop.Append(delta, true, &released));
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(deltas.size()));
}
BENCHMARK(FeedStopStrings);

void RenderChat(benchmark::State& state, const std::string& name) {
  const auto chat_template =
      ChatTemplate::Compile(ReadFile("chat_templates/templates/" + name + ".jinja")).value();
  auto messages = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < state.range(0); ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", Prose(400)}});
  }
  ChatTemplateInput input;
  input.messages = &messages;
  input.add_generation_prompt = true;
  int64_t num_bytes = 0;
  for (auto _ : state) {
    const auto text = chat_template.Render(input);
    num_bytes += static_cast<int64_t>(text->size());
  }
  state.SetBytesProcessed(num_bytes);
}
BENCHMARK_CAPTURE(RenderChat, chatml, "chatml_tools")->Arg(1)->Arg(21);
BENCHMARK_CAPTURE(RenderChat, llama3, "llama3_tools")->Arg(1)->Arg(21);
BENCHMARK_CAPTURE(RenderChat, qwen3, "qwen3_thinking")->Arg(21);

}  // namespace
}  // namespace tandem
