#include "deploy/cli/bench/prompts.h"

#include <set>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::shared_ptr<const Tokenizer> TinyTokenizer() {
  const auto tokenizer =
      Tokenizer::Load(std::string(TANDEM_SOURCE_DIR) + "/deploy/models/tandem-tiny");
  REQUIRE(tokenizer.ok());
  return *tokenizer;
}

class TempFile {
 public:
  explicit TempFile(const std::string& text) { folder_.Write("prompts", text); }
  std::string path() const { return folder_.PathOf("prompts"); }

 private:
  TempFolder folder_;
};

std::vector<BenchPrompt> Make(const BenchServeOptions& options, const Tokenizer* tokenizer,
                              bool takes_token_ids = true) {
  const auto prompts = MakePrompts(options, tokenizer, takes_token_ids);
  INFO(prompts.status().ToString());
  REQUIRE(prompts.ok());
  return *prompts;
}

TEST_CASE("Random prompts have the requested length, counted by the tokenizer") {
  const auto tokenizer = TinyTokenizer();
  BenchServeOptions options;
  options.num_prompts = 20;
  options.input_len = 100;
  options.output_len = 7;
  std::set<std::string> texts;
  for (const BenchPrompt& prompt : Make(options, tokenizer.get())) {
    CHECK(prompt.prompt_tokens == 100);
    CHECK(prompt.prompt_tokens ==
          static_cast<int64_t>(tokenizer->Encode(prompt.text, true)->size()));
    CHECK(prompt.output_tokens == 7);
    texts.insert(prompt.text);
  }
  CHECK(texts.size() == 20);
}

TEST_CASE("The same seed gives the same prompts, another seed others") {
  const auto tokenizer = TinyTokenizer();
  BenchServeOptions options;
  options.num_prompts = 3;
  for (const char* dataset : {"random", "sonnet", "prefix_repetition"}) {
    CAPTURE(dataset);
    options.dataset_name = dataset;
    options.prefix_repetition_num_prefixes = 2;
    options.seed = 1;
    const auto first = Make(options, tokenizer.get());
    const auto again = Make(options, tokenizer.get());
    options.seed = 2;
    const auto other = Make(options, tokenizer.get());
    CHECK(first[0].text == again[0].text);
    CHECK(first[0].text != other[0].text);
  }
}

TEST_CASE("Random lengths stay in their range and fill it") {
  BenchServeOptions options;
  options.num_prompts = 500;
  options.random_input_len = 20;
  options.random_output_len = 10;
  options.random_range_ratio = 0.5;
  int64_t least = 1000, most = 0;
  for (const BenchPrompt& prompt : Make(options, nullptr)) {
    least = std::min(least, prompt.prompt_tokens);
    most = std::max(most, prompt.prompt_tokens);
    CHECK(prompt.token_ids.size() == static_cast<size_t>(prompt.prompt_tokens));
    CHECK(prompt.output_tokens >= 5);
    CHECK(prompt.output_tokens <= 15);
  }
  CHECK(least == 10);
  CHECK(most == 30);
}

TEST_CASE("A random prefix is the same for all prompts and adds to their length") {
  BenchServeOptions options;
  options.num_prompts = 4;
  options.random_input_len = 5;
  options.random_prefix_len = 8;
  const auto prompts = Make(options, nullptr);
  for (const BenchPrompt& prompt : prompts) {
    REQUIRE(prompt.token_ids.size() == 13);
    CHECK(std::equal(prompt.token_ids.begin(), prompt.token_ids.begin() + 8,
                     prompts[0].token_ids.begin()));
    CHECK((&prompt == &prompts[0] || prompt.token_ids != prompts[0].token_ids));
  }
}

TEST_CASE("Without a tokenizer chat prompts are words") {
  BenchServeOptions options;
  options.num_prompts = 1;
  options.input_len = 5;
  const auto prompts = Make(options, nullptr, /*takes_token_ids=*/false);
  CHECK(prompts[0].token_ids.empty());
  CHECK(std::count(prompts[0].text.begin(), prompts[0].text.end(), ' ') == 4);
  CHECK(prompts[0].prompt_tokens == 5);
}

TEST_CASE("prefix_repetition uses each of its prefixes equally often") {
  BenchServeOptions options;
  options.dataset_name = "prefix_repetition";
  options.num_prompts = 11;
  options.prefix_repetition_num_prefixes = 3;
  options.prefix_repetition_prefix_len = 6;
  options.prefix_repetition_suffix_len = 4;
  std::map<std::vector<TokenId>, int> prefixes;
  for (const BenchPrompt& prompt : Make(options, nullptr)) {
    REQUIRE(prompt.token_ids.size() == 10);
    ++prefixes[{prompt.token_ids.begin(), prompt.token_ids.begin() + 6}];
  }
  CHECK(prefixes.size() == 3);
  for (const auto& [prefix, count] : prefixes) CHECK(count == 3);
}

TEST_CASE("sonnet prompts share their first lines and reach the length") {
  const auto tokenizer = TinyTokenizer();
  BenchServeOptions options;
  options.dataset_name = "sonnet";
  options.num_prompts = 3;
  options.sonnet_input_len = 200;
  options.sonnet_prefix_len = 80;
  const auto prompts = Make(options, tokenizer.get());
  const size_t same = static_cast<size_t>(
      std::mismatch(prompts[0].text.begin(), prompts[0].text.end(), prompts[1].text.begin()).first -
      prompts[0].text.begin());
  CHECK(tokenizer->Encode(prompts[0].text.substr(0, same), false)->size() >= 80);
  for (const BenchPrompt& prompt : prompts) {
    CHECK(prompt.prompt_tokens >= 200);
    CHECK(prompt.prompt_tokens < 240);
  }
}

TEST_CASE("sharegpt takes first turns of a usable length") {
  const TempFile file(R"([
    {"conversations": [{"from": "human", "value": "one two three four five"},
                       {"from": "gpt", "value": "a b c d e f"}]},
    {"conversations": [{"from": "human", "value": "too short"}, {"from": "gpt", "value": "a b c d"}]},
    {"conversations": [{"from": "human", "value": "no answer to this one here"}]},
    {"conversations": "broken"}, 5])");
  BenchServeOptions options;
  options.dataset_name = "sharegpt";
  options.dataset_path = file.path();
  options.num_prompts = 3;
  auto prompts = Make(options, nullptr);
  REQUIRE(prompts.size() == 3);  // one conversation, three times
  for (const BenchPrompt& prompt : prompts) {
    CHECK(prompt.text == "one two three four five");
    CHECK(prompt.output_tokens == 6);
  }
  options.no_oversample = true;
  options.sharegpt_output_len = 9;
  prompts = Make(options, nullptr);
  REQUIRE(prompts.size() == 1);
  CHECK(prompts[0].output_tokens == 9);
}

TEST_CASE("custom takes lines of JSON") {
  const TempFile file(
      "{\"prompt\": \"first\", \"output_tokens\": 3}\n\n{\"prompt\": \"second\", "
      "\"output_tokens\": 4}\n");
  BenchServeOptions options;
  options.dataset_name = "custom";
  options.dataset_path = file.path();
  options.num_prompts = 2;
  options.disable_shuffle = true;
  options.custom_output_len = -1;
  const auto prompts = Make(options, nullptr);
  CHECK(prompts[0].text == "first");
  CHECK(prompts[0].output_tokens == 3);
  CHECK(prompts[1].output_tokens == 4);
}

TEST_CASE("A dataset that cannot be read is named") {
  BenchServeOptions options;
  options.dataset_name = "custom";
  options.dataset_path = "/nonexistent/file";
  CHECK(MakePrompts(options, nullptr, true).status().code() == StatusCode::kNotFound);
  for (const char* text : {"", "not json\n", "{\"text\": 1}\n"}) {
    const TempFile file(text);
    options.dataset_path = file.path();
    const Status status = MakePrompts(options, nullptr, true).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(status.message(), Catch::Contains(file.path()));
  }
  const TempFile no_list("{}");
  options.dataset_name = "sharegpt";
  options.dataset_path = no_list.path();
  CHECK(MakePrompts(options, nullptr, true).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("RandomTokenIds stays inside the vocabulary") {
  for (const TokenId id : RandomTokenIds(1000, 50, 3)) CHECK((id >= 0 && id < 50));
  CHECK(RandomTokenIds(5, 1 << 20, 3) == RandomTokenIds(5, 1 << 20, 3));
  for (const TokenId id : RandomTokenIds(1000, 1 << 20, 4)) CHECK(id < 10000);
}

TEST_CASE("Texts for vectors come in batches, and documents with their query") {
  const auto tokenizer = TinyTokenizer();
  BenchServeOptions options;
  options.backend = "openai-embeddings";
  options.num_prompts = 7;
  options.input_len = 30;
  options.random_batch_size = 3;
  const auto batches = Make(options, tokenizer.get(), /*takes_token_ids=*/false);
  REQUIRE(batches.size() == 3);
  CHECK(batches[0].inputs.size() == 3);
  CHECK(batches[2].inputs.size() == 1);
  CHECK(batches[0].prompt_tokens == 90);

  options.backend = "vllm-rerank";
  options.dataset_name = "random-rerank";
  const auto requests = Make(options, tokenizer.get(), /*takes_token_ids=*/false);
  REQUIRE(requests.size() == 3);
  CHECK(requests[0].inputs.size() == 4);
  CHECK(requests[2].inputs.size() == 2);
  CHECK(requests[0].inputs[0] == requests[2].inputs[0]);  // the query
  CHECK(requests[0].inputs[1] != requests[0].inputs[2]);
}

TEST_CASE("Images are drawn within their limits and sizes") {
  BenchServeOptions options;
  options.backend = "openai-chat";
  options.dataset_name = "random-mm";
  options.num_prompts = 40;
  options.input_len = 5;
  options.random_mm_base_items_per_request = 2;
  options.random_mm_num_mm_items_range_ratio = 1;
  options.random_mm_limit_mm_per_prompt = R"({"image": 3})";
  options.random_mm_bucket_config = "{(1, 1, 1): 3, (2, 40, 1): 1}";
  std::set<size_t> counts;
  size_t num_small = 0, num_images = 0;
  for (const BenchPrompt& prompt : Make(options, nullptr, /*takes_token_ids=*/false)) {
    counts.insert(prompt.images.size());
    for (const std::string& url : prompt.images) {
      ++num_images;
      num_small += url.size() < 150 ? 1 : 0;
    }
  }
  CHECK(counts == std::set<size_t>{0, 1, 2, 3});
  CHECK(num_small > num_images / 2);
  CHECK(num_small < num_images);
}

}  // namespace
}  // namespace tandem
