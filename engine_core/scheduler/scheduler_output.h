#pragma once

// What the executor runs in one step: a plain value made by Scheduler::Schedule; its result goes to
// Scheduler::Update. Requests live in a persistent batch on the worker and are addressed by
// RequestSlot, so a steady decode step carries no string, no hash and no allocation per request.
// Thread: engine loop. The vectors are reused from step to step.
//
// Life of a slot: assigned at admission (a row in `admitted`), named by each later step that runs
// the request, and released through `freed_slots` after a finish, an abort or a preemption. A
// worker applies `freed_slots` first, then `admitted`, then runs `requests` in order: a slot freed
// here may be admitted again in the same step.
//
// The worker knows each token it sampled itself: after a step it appends that token to the slot's
// tokens. Tokens are sent again only when the request is admitted after a preemption. A step may be
// made before the tokens of the previous one are known here: it can run a request once more that
// has just ended or failed, and the result of that is dropped.
//
// Drafts: the last num_draft_tokens of a request's tokens are guesses. The worker computes them
// like known tokens, accepts the longest run from the first one on that it would have sampled, and
// samples one token after it. KV of the rejected ones is overwritten: the next step begins at the
// first of them. While a step with drafts is in flight, num_computed_tokens counts all of them as
// accepted. The worker knows how many were and goes on from there: it has room, and uses its own
// guesses.
//
// Pointers and spans in `admitted` and `token_masks` are valid until Submit returns; the worker
// copies what it keeps.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/ids.h"
#include "engine_core/kv_cache/extra_keys.h"
#include "engine_core/scheduler/request_images.h"

namespace tandem {

namespace wire {
struct PoolingParams;
}
namespace wire {
struct SamplingParams;
}

enum class ScheduledKind : uint8_t {
  kRunning,  // the slot is known to the worker
  kNew,      // first admission; has a row in `admitted`
  kResumed,  // admitted again after a preemption; has a row in `admitted`
};

struct ScheduledRequest {
  RequestSlot slot{};
  // Positions [num_computed_tokens, num_computed_tokens + num_scheduled_tokens) run in this step.
  // For a new or resumed request, num_computed_tokens counts its prefix cache hit.
  int32_t num_computed_tokens = 0;
  int32_t num_scheduled_tokens = 0;
  // Range of SchedulerOutput::new_block_ids. Running: blocks to append to the slot's block table,
  // often none. New and resumed: the whole block table. Place by place, at each the blocks of all
  // groups of layers.
  int32_t new_blocks_begin = 0;
  int32_t num_new_blocks = 0;
  ScheduledKind kind = ScheduledKind::kRunning;
  // The step reaches the last known token: that position makes logits and a token is sampled, as at
  // each draft after it. A request that is pooled gets its vector in place of a token.
  bool needs_sample = false;
  // Range of SchedulerOutput::draft_token_ids.
  int32_t drafts_begin = 0;
  int32_t num_draft_tokens = 0;
};

// What a worker needs to know of a request that enters the batch.
struct AdmittedRequest {
  int32_t request_idx = 0;                // into SchedulerOutput::requests
  const RequestId* request_id = nullptr;  // for logs, and for the seed where the client gave none
  const wire::SamplingParams* sampling_params = nullptr;
  const wire::PoolingParams* pooling_params = nullptr;  // null: it generates
  std::span<const TokenId> token_ids;                   // the prompt, then the outputs so far
  int32_t num_prompt_tokens = 0;
  // In place of the first token ids, which are zeros; null: none.
  std::shared_ptr<const PromptEmbeddings> embeddings = {};
  std::shared_ptr<const RequestImages> images = {};  // null: none
  const Adapter* adapter = nullptr;                  // null: none
};

// Limits the tokens that a request may sample in this step. One with drafts has a mask more for
// each, in their order: those after a draft that its mask refuses are not read.
struct TokenMask {
  int32_t request_idx = 0;         // into SchedulerOutput::requests; it needs a sample
  std::span<const int32_t> words;  // bit i % 32 of word i / 32 allows token i
  // Range of SchedulerOutput::forced_token_ids: what follows the sampled token, which is the only
  // one that the mask allows. The worker appends them to the request's tokens as well; the next
  // step computes all of them.
  int32_t forced_begin = 0;
  int32_t num_forced = 0;
};

// What a step computes of an image with the vision tower: slices of its work, after those of
// earlier steps. Its rows are there after the last of ImageInput::num_slices.
struct EncoderInput {
  std::string key;                          // ImageInput::key
  std::shared_ptr<const ImageInput> image;  // null: an earlier step began with it
  int32_t num_slices = 0;
};

struct SchedulerOutput {
  std::vector<ScheduledRequest> requests;
  std::vector<AdmittedRequest> admitted;  // ascending request_idx
  std::vector<BlockId> new_block_ids;     // flat; see the ranges above
  // Flat; see the ranges above. kNoToken stands for the worker's own latest guess; where it has
  // none, the place is only room and is not accepted.
  std::vector<TokenId> draft_token_ids;
  std::vector<TokenMask> token_masks;     // ascending request_idx; of the requests that have any
  std::vector<TokenId> forced_token_ids;  // flat; see the ranges above
  // Set: the words of the masks are still being written, and this waits for them and for what is
  // forced. An executor calls it before it reads either, as late as it can.
  std::function<void()> finish_token_masks;
  std::vector<RequestSlot> freed_slots;  // since the previous step
  // Rows of images that the worker need not keep or go on to compute, by ImageInput::key, and after
  // that those that it computes before anything runs, and keeps for this step and later ones.
  std::vector<std::string> dropped_encoder_outputs;
  std::vector<EncoderInput> encoder_inputs;
  int32_t num_scheduled_tokens = 0;  // sum over requests
  // Those of the requests whose known tokens were not all computed, and how many such there are.
  int32_t num_prefill_tokens = 0;
  int32_t num_prefills = 0;
  int32_t num_drafts_wanted = 0;  // the most that a drafter proposes for each of them
  // A KV connector's worker must be asked, even when nothing runs.
  bool polls_kv_transfers = false;

  bool empty() const { return requests.empty(); }
  // Whether it must be submitted.
  bool has_work() const {
    return !empty() || !freed_slots.empty() || !dropped_encoder_outputs.empty() ||
           !encoder_inputs.empty() || polls_kv_transfers;
  }
  // Of all images.
  int32_t NumSlices() const {
    int32_t sum = 0;
    for (const EncoderInput& input : encoder_inputs) sum += input.num_slices;
    return sum;
  }
  std::span<const BlockId> NewBlocks(const ScheduledRequest& request) const {
    return {new_block_ids.data() + request.new_blocks_begin,
            static_cast<size_t>(request.num_new_blocks)};
  }
  std::span<const TokenId> Drafts(const ScheduledRequest& request) const {
    return {draft_token_ids.data() + request.drafts_begin,
            static_cast<size_t>(request.num_draft_tokens)};
  }
  std::span<const TokenId> Forced(const TokenMask& mask) const {
    return {forced_token_ids.data() + mask.forced_begin, static_cast<size_t>(mask.num_forced)};
  }
  void Clear() {
    requests.clear();
    admitted.clear();
    new_block_ids.clear();
    draft_token_ids.clear();
    token_masks.clear();
    forced_token_ids.clear();
    finish_token_masks = nullptr;
    freed_slots.clear();
    dropped_encoder_outputs.clear();
    encoder_inputs.clear();
    num_scheduled_tokens = 0;
    num_prefill_tokens = 0;
    num_prefills = 0;
    num_drafts_wanted = 0;
    polls_kv_transfers = false;
  }
};

}  // namespace tandem
