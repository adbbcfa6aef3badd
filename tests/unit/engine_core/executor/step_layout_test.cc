// Layouts of hand-made steps over a batch, without a backend.

#include "engine_core/executor/step_layout.h"

#include <deque>

#include "engine_core/executor/step_inputs.h"
#include "kernels/backend.h"
#include "proto_msgpack/codec.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Equals;

const ExecutorLimits kLimits = {.num_blocks = 16,
                                .block_size = 4,
                                .max_num_seqs = 4,
                                .max_num_batched_tokens = 40,
                                .max_model_len = 24,
                                .vocab_size = 100};

// A batch, and the step that it takes in next.
class Steps {
 public:
  explicit Steps(bool has_device_sampler = false)
      : batch_(kLimits, {.vocab_size = kLimits.vocab_size}, has_device_sampler) {}

  void Admit(int slot, int num_prompt_tokens, const wire::SamplingParams& params = {}) {
    std::vector<TokenId> prompt;
    for (int i = 0; i < num_prompt_tokens; ++i) prompt.push_back(10 * slot + i);
    const RequestId id = "a";
    batch_.Admit(RequestSlot{slot},
                 {.request_id = &id,
                  .sampling_params = &params,
                  .token_ids = prompt,
                  .num_prompt_tokens = num_prompt_tokens},
                 0);
  }
  void Run(int slot, int num_computed, int num_scheduled, std::vector<BlockId> blocks,
           bool needs_sample) {
    batch_.AppendBlocks(RequestSlot{slot}, blocks);
    ScheduledRequest& request = step_.requests.emplace_back();
    request.slot = RequestSlot{slot};
    request.num_computed_tokens = num_computed;
    request.num_scheduled_tokens = num_scheduled;
    request.needs_sample = needs_sample;
    step_.num_scheduled_tokens += num_scheduled;
  }
  // For the request that was added last.
  void Mask() {
    step_.token_masks.push_back({static_cast<int32_t>(step_.requests.size()) - 1, {}});
  }
  StepLayout LayOut() {
    StepLayout layout;
    layout.LayOut(step_, batch_);
    step_.Clear();
    return layout;
  }
  InputBatch& batch() { return batch_; }
  ScheduledRequest& last() { return step_.requests.back(); }

 private:
  InputBatch batch_;
  SchedulerOutput step_;
};

std::vector<int32_t> TokenRows(const StepLayout& layout) {
  std::vector<int32_t> rows;
  for (const LogitsRow& row : layout.logits_rows) rows.push_back(row.token_row);
  return rows;
}

std::vector<int32_t> PromptRows(const StepLayout& layout) {
  std::vector<int32_t> rows;
  for (const LogitsRow& row : layout.logits_rows) rows.push_back(row.prompt_row);
  return rows;
}

TEST_CASE("step layout: chunks and whole prompts stand one after another") {
  Steps steps;
  steps.Admit(0, 9);
  steps.Admit(2, 5);
  steps.Run(2, 0, 5, {BlockId{3}, BlockId{4}}, true);
  steps.Run(0, 0, 6, {BlockId{5}, BlockId{6}, BlockId{7}}, false);
  const StepLayout first = steps.LayOut();
  CHECK_THAT(first.query_start, Equals(std::vector<int32_t>{0, 5, 11}));
  CHECK_THAT(first.context_len, Equals(std::vector<int32_t>{5, 6}));
  CHECK_THAT(TokenRows(first), Equals(std::vector<int32_t>{4}));
  CHECK(first.max_blocks == 3);
  CHECK(first.num_tokens() == 11);
  CHECK(first.num_requests() == 2);
  CHECK(first.num_logits_rows() == 1);
  CHECK_FALSE(first.is_uniform_decode());
  steps.batch().AppendToken(RequestSlot{2}, 7);
  steps.Run(2, 5, 1, {}, true);
  steps.Run(0, 6, 3, {}, true);
  const StepLayout second = steps.LayOut();
  CHECK_THAT(second.query_start, Equals(std::vector<int32_t>{0, 1, 4}));
  CHECK_THAT(second.context_len, Equals(std::vector<int32_t>{6, 9}));
  CHECK_THAT(TokenRows(second), Equals(std::vector<int32_t>{0, 3}));
  CHECK_FALSE(second.is_uniform_decode());
}

TEST_CASE("step layout: a step of one sampled token each is a uniform decode, and can be padded") {
  Steps steps;
  for (const int slot : {0, 1, 2}) {
    steps.Admit(slot, 4);
    steps.Run(slot, 3, 1, {BlockId{slot + 1}}, slot != 1);
  }
  CHECK_FALSE(steps.LayOut().is_uniform_decode());  // nothing is sampled of one
  for (const int slot : {0, 2}) steps.Run(slot, 3, 1, {}, true);
  StepLayout layout = steps.LayOut();
  CHECK(layout.is_uniform_decode());
  layout.PadTo(4);
  CHECK_THAT(layout.query_start, Equals(std::vector<int32_t>{0, 1, 2, 3, 4}));
  CHECK_THAT(layout.context_len, Equals(std::vector<int32_t>{4, 4, 1, 1}));
  CHECK(layout.requests.size() == 2);
  CHECK(layout.num_requests() == 4);
  CHECK(layout.num_tokens() == 4);
  CHECK(layout.num_logits_rows() == 4);
  CHECK(layout.max_blocks == 1);
}

TEST_CASE("step layout: each position of a prompt whose logprobs are asked for makes logits") {
  Steps steps;
  wire::SamplingParams params;
  params.prompt_logprobs = 2;
  steps.Admit(1, 6, params);
  steps.Run(1, 0, 4, {BlockId{1}, BlockId{2}}, false);
  const StepLayout first = steps.LayOut();
  CHECK_THAT(PromptRows(first), Equals(std::vector<int32_t>{0, 1, 2, 3}));
  steps.Run(1, 4, 2, {}, true);
  const StepLayout last = steps.LayOut();
  CHECK_THAT(TokenRows(last), Equals(std::vector<int32_t>{0, 1}));
  CHECK_THAT(PromptRows(last), Equals(std::vector<int32_t>{4, -1}));
}

TEST_CASE("step layout: each position of a prompt whose tokens are scored makes logits") {
  Steps steps(true);
  const int32_t ids[] = {1, 2, 3};
  wire::SamplingParams params;
  params.prompt_logprob_token_ids = wire::PackedTensor(
      {.dtype = "<i4", .shape = {3, 1}, .data = {reinterpret_cast<const char*>(ids), sizeof ids}});
  params.prompt_logprob_start = 2;
  steps.Admit(1, 6, params);
  steps.Run(1, 0, 4, {BlockId{1}, BlockId{2}}, false);
  const StepLayout first = steps.LayOut();
  CHECK_THAT(PromptRows(first), Equals(std::vector<int32_t>{2, 3}));
  CHECK(!first.has_device_rows);
  steps.Run(1, 4, 2, {}, true);
  CHECK_THAT(PromptRows(steps.LayOut()), Equals(std::vector<int32_t>{4, -1}));
}

TEST_CASE("step layout: rows are the device's where its sampler takes the request") {
  Steps steps(true);
  wire::SamplingParams on_device, on_host;
  on_device.logprobs = 3;
  on_host.logprobs = 5;
  on_host.bad_words_token_ids = {std::vector<TokenId>(kMaxDeviceWordTokens + 1, 5)};
  steps.Admit(0, 3, on_device);
  steps.Admit(1, 3, on_host);
  steps.Run(0, 0, 3, {BlockId{1}}, true);
  const StepLayout alone = steps.LayOut();
  CHECK(alone.has_device_rows);
  CHECK_FALSE(alone.has_host_rows);
  CHECK(alone.max_device_logprobs == 3);
  steps.Run(0, 2, 1, {}, true);
  steps.Run(1, 0, 3, {BlockId{2}}, true);
  const StepLayout both = steps.LayOut();
  CHECK(both.has_device_rows);
  CHECK(both.has_host_rows);
  CHECK(both.max_device_logprobs == 3);
  CHECK(both.logits_rows[0].on_device);
  CHECK_FALSE(both.logits_rows[1].on_device);
  steps.Run(1, 0, 3, {}, true);
  const StepLayout host = steps.LayOut();
  CHECK_FALSE(host.has_device_rows);
  CHECK(host.max_device_logprobs == -1);
}

TEST_CASE("step layout: a token mask belongs to the row that samples") {
  Steps steps;
  wire::SamplingParams params, failing;
  params.prompt_logprobs = 0;
  failing.logprobs = 1000;
  steps.Admit(0, 3);
  steps.Admit(1, 3, failing);
  steps.Admit(2, 3, params);
  steps.Run(0, 0, 3, {BlockId{1}}, true);
  steps.Run(1, 0, 3, {BlockId{2}}, true);
  steps.Mask();
  steps.Run(2, 0, 3, {BlockId{3}}, true);
  steps.Mask();
  std::vector<int32_t> mask_idxs;
  for (const LogitsRow& row : steps.LayOut().logits_rows) mask_idxs.push_back(row.mask_idx);
  CHECK_THAT(mask_idxs, Equals(std::vector<int32_t>{-1, -1, -1, 1}));
}

TEST_CASE("step layout: each draft has a token mask of its own") {
  Steps steps;
  const std::vector<TokenId> drafts = {50, 51};
  for (const int slot : {0, 1, 2}) steps.Admit(slot, 3);
  steps.Run(0, 0, 3, {BlockId{1}}, true);
  steps.Mask();
  steps.Run(1, 2, 3, {BlockId{2}, BlockId{4}, BlockId{5}}, true);
  steps.last().num_draft_tokens = 2;
  steps.batch().SetDrafts(RequestSlot{1}, drafts);
  for (int i = 0; i < 3; ++i) steps.Mask();
  steps.Run(2, 0, 3, {BlockId{3}}, true);
  std::vector<int32_t> mask_idxs;
  for (const LogitsRow& row : steps.LayOut().logits_rows) mask_idxs.push_back(row.mask_idx);
  CHECK_THAT(mask_idxs, Equals(std::vector<int32_t>{0, 1, 2, 3, -1}));
}

TEST_CASE("step layout: a request that fails runs, and makes no logits") {
  Steps steps;
  wire::SamplingParams params;
  params.logprobs = 1000;
  steps.Admit(0, 3, params);
  steps.Run(0, 0, 3, {BlockId{1}}, true);
  const StepLayout layout = steps.LayOut();
  CHECK(layout.num_tokens() == 3);
  CHECK(layout.num_logits_rows() == 0);
  CHECK_FALSE(layout.has_host_rows);
}

TEST_CASE("step layout: drafts make rows, those that were not accepted are not supposed") {
  Steps steps;
  steps.Admit(0, 6);
  // The scheduler supposes that two more tokens were accepted, and leaves room for three drafts.
  steps.Run(0, 7, 4, {BlockId{5}, BlockId{2}, BlockId{3}, BlockId{4}, BlockId{6}, BlockId{7}},
            true);
  steps.last().num_draft_tokens = 3;
  const std::vector<TokenId> drafts = {50, 51};
  steps.batch().SetDrafts(RequestSlot{0}, drafts);
  const StepLayout layout = steps.LayOut();
  CHECK(layout.requests[0].num_computed_tokens == 5);
  CHECK(layout.requests[0].num_scheduled_tokens == 3);
  CHECK(layout.requests[0].num_draft_tokens == 2);
  CHECK(layout.context_len[0] == 8);
  CHECK_THAT(TokenRows(layout), Equals(std::vector<int32_t>{0, 1, 2}));
  CHECK_FALSE(layout.is_uniform_decode());
  CHECK_THAT(layout.num_drafts, Equals(std::vector<int32_t>{2}));
}

TEST_CASE("step layout: drafts that were accepted are laid out by their places among the step's") {
  Steps steps;
  steps.Admit(0, 6);
  steps.Run(0, 5, 1, {BlockId{5}, BlockId{2}, BlockId{3}}, true);
  steps.Admit(1, 3);
  steps.Run(1, 2, 1, {BlockId{6}, BlockId{7}}, true);
  CHECK(steps.LayOut().num_drafts.empty());
  StepLayout taken;
  taken.Begin();
  taken.AddDrafts(steps.batch(), RequestSlot{0}, 4, 2, 0);
  taken.AddDrafts(steps.batch(), RequestSlot{1}, 2, 1, 5);
  CHECK_THAT(taken.query_start, Equals(std::vector<int32_t>{0, 2, 3}));
  CHECK_THAT(taken.context_len, Equals(std::vector<int32_t>{6, 3}));
  CHECK_THAT(TokenRows(taken), Equals(std::vector<int32_t>{0, 1, 5}));
  CHECK(taken.num_drafts.empty());
  CHECK(taken.max_blocks == 3);
}

TEST_CASE("input batch: drafts follow the tokens until one is not what was drafted") {
  Steps steps;
  steps.Admit(0, 3);
  InputBatch& batch = steps.batch();
  const RequestSlot slot{0};
  const std::vector<TokenId> drafts = {50, 51, 52}, named = {60, kNoToken, kNoToken, kNoToken};
  batch.SetDrafts(slot, drafts);
  batch.PlaceDrafts(slot, named);  // the first is another's guess, a fourth does not exist
  const auto inputs = batch.input_ids(slot);
  CHECK_THAT(std::vector<TokenId>(inputs.begin() + 3, inputs.end()),
             Equals(std::vector<TokenId>{60, 51, 52}));
  CHECK(batch.AppendToken(slot, 60));
  CHECK(batch.row(slot).num_drafts == 2);
  CHECK_FALSE(batch.AppendToken(slot, 7));
  CHECK(batch.row(slot).num_drafts == 0);
  CHECK(batch.token_ids(slot).size() == 5);
  CHECK_FALSE(batch.AppendToken(slot, 52));
}

TEST_CASE("step layout: padding alone has any number of tokens") {
  StepLayout layout;
  layout.LayOutPadding(7, 3, 5, 2);
  CHECK_THAT(layout.query_start, Equals(std::vector<int32_t>{0, 3, 6, 7}));
  CHECK_THAT(layout.context_len, Equals(std::vector<int32_t>{3, 3, 1}));
  CHECK(layout.max_blocks == 2);
  CHECK(layout.num_logits_rows() == 5);
  CHECK(layout.requests.empty());
}

TEST_CASE("step inputs: a layout's tokens, their places in the cache, and padding") {
  Steps steps;
  steps.Admit(0, 6);
  steps.Admit(1, 3);
  steps.Run(0, 2, 4, {BlockId{5}, BlockId{2}}, true);
  steps.Run(1, 2, 1, {BlockId{9}}, true);
  StepLayout layout = steps.LayOut();
  const auto backend = MakeReferenceBackend();
  StepInputs inputs = StepInputs::Create(&backend->device(), {.num_tokens = 9,
                                                              .num_requests = 4,
                                                              .num_logits_rows = 9,
                                                              .attention_work = 0,
                                                              .table_columns = 3})
                          .value();
  const auto fill = [&] {
    inputs.Begin({.num_tokens = layout.num_tokens(),
                  .num_requests = layout.num_requests(),
                  .num_logits_rows = layout.num_logits_rows(),
                  .attention_work = 0,
                  .table_columns = layout.max_blocks});
    inputs.Fill(layout, steps.batch());
  };
  const auto numbers = [](const Tensor& part) {
    return std::vector<int32_t>(part.Data<int32_t>(), part.Data<int32_t>() + part.NumElements());
  };
  fill();
  CHECK_THAT(numbers(inputs.host().token_ids), Equals(std::vector<int32_t>{2, 3, 4, 5, 12}));
  CHECK_THAT(numbers(inputs.host().positions), Equals(std::vector<int32_t>{2, 3, 4, 5, 2}));
  CHECK_THAT(numbers(inputs.host().slots), Equals(std::vector<int32_t>{22, 23, 8, 9, 38}));
  CHECK_THAT(numbers(inputs.host().logits_rows), Equals(std::vector<int32_t>{3, 4}));
  CHECK(inputs.host().block_table.Row<int32_t>(0)[1] == 2);
  CHECK(inputs.host().block_table.Row<int32_t>(1)[0] == 9);
  for (const int slot : {0, 1}) steps.Run(slot, 2, 1, {}, true);
  layout = steps.LayOut();
  layout.PadTo(4);
  fill();
  CHECK_THAT(numbers(inputs.host().token_ids), Equals(std::vector<int32_t>{2, 12, 0, 0}));
  CHECK_THAT(numbers(inputs.host().positions), Equals(std::vector<int32_t>{2, 2, 0, 0}));
  CHECK_THAT(numbers(inputs.host().slots), Equals(std::vector<int32_t>{22, 38, -1, -1}));
  CHECK_THAT(numbers(inputs.host().logits_rows), Equals(std::vector<int32_t>{0, 1, 2, 3}));
  CHECK(inputs.host().block_table.Row<int32_t>(3)[0] == 0);
  layout.LayOutPadding(5, 3, 2, kLimits.block_size);
  fill();
  CHECK_THAT(numbers(inputs.host().positions), Equals(std::vector<int32_t>{0, 1, 2, 0, 1}));
  CHECK_THAT(numbers(inputs.host().logits_rows), Equals(std::vector<int32_t>{0, 1}));
  CHECK_THAT(numbers(inputs.host().block_table), Equals(std::vector<int32_t>{0, 0}));
}

TEST_CASE("step inputs: groups of layers have tables and slots of their own") {
  ExecutorLimits limits = kLimits;
  limits.groups = {.num_full = 1, .num_local = 1, .window = 3};
  InputBatch batch(limits, {.vocab_size = limits.vocab_size});
  const wire::SamplingParams params;
  const RequestId id = "a";
  const std::vector<TokenId> prompt = {7, 8, 9, 10, 11, 12};
  batch.Admit(
      RequestSlot{1},
      {.request_id = &id, .sampling_params = &params, .token_ids = prompt, .num_prompt_tokens = 6},
      4);
  const std::vector<BlockId> blocks = {BlockId{3}, kNullBlock, BlockId{2}, BlockId{5}};
  batch.AppendBlocks(RequestSlot{1}, blocks);
  CHECK(batch.row(RequestSlot{1}).num_blocks == 2);
  CHECK_THAT(std::vector<int32_t>(batch.block_table(RequestSlot{1}, 1).begin(),
                                  batch.block_table(RequestSlot{1}, 1).end()),
             Equals(std::vector<int32_t>{0, 5}));
  SchedulerOutput step;
  step.requests.push_back({.slot = RequestSlot{1},
                           .num_computed_tokens = 4,
                           .num_scheduled_tokens = 2,
                           .needs_sample = true});
  step.num_scheduled_tokens = 2;
  StepLayout layout;
  layout.LayOut(step, batch);
  const auto backend = MakeReferenceBackend();
  const StepShape shape = {.num_tokens = 2,
                           .num_requests = 1,
                           .num_logits_rows = 1,
                           .table_columns = layout.max_blocks,
                           .num_groups = 2};
  StepInputs inputs = StepInputs::Create(&backend->device(), shape).value();
  inputs.Begin(shape);
  inputs.Fill(layout, batch);
  const auto numbers = [](const Tensor& part) {
    return std::vector<int32_t>(part.Data<int32_t>(), part.Data<int32_t>() + part.NumElements());
  };
  CHECK_THAT(numbers(inputs.host().token_ids), Equals(std::vector<int32_t>{11, 12}));
  CHECK_THAT(numbers(inputs.host().slots), Equals(std::vector<int32_t>{8, 9, 20, 21}));
  CHECK_THAT(numbers(inputs.host().block_table), Equals(std::vector<int32_t>{3, 2, 0, 5}));
  const AttentionBatch local = AttentionBatchOf(inputs.host(), layout.lengths(), 1);
  CHECK_THAT(numbers(local.slot_mapping), Equals(std::vector<int32_t>{20, 21}));
  CHECK_THAT(numbers(local.block_table), Equals(std::vector<int32_t>{0, 5}));
  inputs.Begin(shape);
  inputs.Fill(layout, batch, /*numbers_per_block=*/3);
  CHECK_THAT(numbers(inputs.host().slots), Equals(std::vector<int32_t>{24, 25, 60, 61}));
  CHECK_THAT(numbers(inputs.host().block_table), Equals(std::vector<int32_t>{9, 6, 0, 15}));
}

}  // namespace
}  // namespace tandem
