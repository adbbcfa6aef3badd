// Checkpoints of the scheduler: every request with its tokens, queues and slots in their order.
// They are taken when no step is in flight, so nothing of a step belongs to one; statistics that
// were not sent yet, and stamps for clients, are left out. The weights of an adapter and the
// pixels of images are left out too, what names them is there. REQUIRES: no connector; beside one
// there is no flight recorder.

#include <limits>

#include "common/check.h"
#include "engine_core/scheduler/packed_request.h"
#include "engine_core/scheduler/scheduler.h"

namespace tandem {
namespace {

// The tokens that the request came with; those after them were sampled here.
size_t NumArrivedTokens(const Request& request) {
  return static_cast<size_t>(request.num_prompt_tokens) +
         static_cast<size_t>(request.wire.own.num_prior_output_tokens);
}

void SaveEmbeddings(const PromptEmbeddings* embeddings, ByteWriter* out) {
  out->Fixed(embeddings != nullptr);
  if (embeddings == nullptr) return;
  out->Fixed(embeddings->type);
  out->Signed(embeddings->num_columns);
  out->Varint(embeddings->runs.size());
  for (const PromptEmbeddings::Run& run : embeddings->runs) {
    out->Signed(run.begin);
    out->Signed(run.num_rows);
  }
  out->Bytes(embeddings->data);
}

StatusOr<std::shared_ptr<const PromptEmbeddings>> LoadEmbeddings(ByteReader* in) {
  if (in->Fixed<uint8_t>() == 0) return std::shared_ptr<const PromptEmbeddings>();
  PromptEmbeddings embeddings;
  embeddings.type = in->Fixed<PromptEmbeddings::Type>();
  embeddings.num_columns = static_cast<int32_t>(in->Signed());
  bool is_whole =
      embeddings.num_columns > 0 && embeddings.type <= PromptEmbeddings::Type::kBfloat16;
  int64_t num_rows = 0;
  for (size_t left = in->Count(); left > 0 && in->ok(); --left) {
    PromptEmbeddings::Run run;
    run.begin = static_cast<int32_t>(in->Signed());
    run.num_rows = static_cast<int32_t>(in->Signed());
    const int32_t free_from = embeddings.runs.empty() ? 0 : embeddings.runs.back().end();
    is_whole = is_whole && run.num_rows > 0 && run.begin >= free_from &&
               run.num_rows <= std::numeric_limits<int32_t>::max() - run.begin;
    num_rows += run.num_rows;
    embeddings.runs.push_back(run);
  }
  embeddings.data = in->Bytes();
  const size_t num_bytes = embeddings.data.size();
  if (!is_whole || num_rows == 0 || num_bytes % embeddings.row_bytes() != 0 ||
      num_bytes / embeddings.row_bytes() != static_cast<size_t>(num_rows)) {
    return DataLossError("the embeddings of a prompt are broken");
  }
  return std::make_shared<const PromptEmbeddings>(std::move(embeddings));
}

// Without the pixels, which would fill a ring by themselves.
void SaveImages(const RequestImages* images, ByteWriter* out) {
  out->Varint(images == nullptr ? 0 : images->size());
  if (images == nullptr) return;
  for (const auto& image : *images) {
    out->Bytes(image->identifier);
    out->Bytes(image->key);
    for (const int32_t number : {image->begin, image->num_tokens, image->num_rows, image->grid_t,
                                 image->grid_h, image->grid_w, image->num_slices}) {
      out->Signed(number);
    }
    out->Varint(image->runs.size());
    for (const ImageInput::Run& run : image->runs) {
      out->Signed(run.begin);
      out->Signed(run.num_rows);
    }
    out->List(std::span<const int64_t>(image->shape));
  }
}

StatusOr<std::shared_ptr<const RequestImages>> LoadImages(ByteReader* in) {
  auto images = std::make_shared<RequestImages>();
  for (size_t left = in->Count(); left > 0 && in->ok(); --left) {
    auto image = std::make_shared<ImageInput>();
    image->identifier = std::string(in->Bytes());
    image->key = std::string(in->Bytes());
    for (int32_t* number : {&image->begin, &image->num_tokens, &image->num_rows, &image->grid_t,
                            &image->grid_h, &image->grid_w, &image->num_slices}) {
      *number = static_cast<int32_t>(in->Signed());
    }
    for (size_t runs = in->Count(); runs > 0 && in->ok(); --runs) {
      const auto begin = static_cast<int32_t>(in->Signed());
      image->runs.push_back({begin, static_cast<int32_t>(in->Signed())});
    }
    in->List(&image->shape);
    if (image->num_slices < 1) return DataLossError("the images of a prompt are broken");
    images->push_back(std::move(image));
  }
  if (!in->ok()) return DataLossError("the images of a prompt are broken");
  if (images->empty()) return std::shared_ptr<const RequestImages>();
  return std::shared_ptr<const RequestImages>(std::move(images));
}

void SaveRequest(const Request& request, ByteWriter* out) {
  CHECK(request.num_steps_in_flight == 0 && !request.holds_blocks && !request.holds_back_hashes)
      << request.id();
  const std::span<const TokenId> tokens = request.token_ids;
  PackRequest(request.wire, tokens.first(NumArrivedTokens(request)), out);
  out->List(tokens.subspan(NumArrivedTokens(request)));
  SaveEmbeddings(request.extra_keys.embeddings.get(), out);
  SaveImages(request.images.get(), out);
  PackAdapter(request.extra_keys.adapter, out);
  out->Signed(request.order);
  out->Fixed(request.status);
  out->Signed(Index(request.slot));
  out->Signed(request.num_computed_tokens);
  out->Signed(request.num_preemptions);
  out->List(std::span<const TokenId>(request.drafts.token_ids));
  out->Fixed(request.known);
  out->Fixed(request.first_known);
  for (const bool flag : {request.needs_grammar, request.mid_prefill, request.drops_stale_output,
                          request.has_output, request.is_passed_over, request.awaits_adapter}) {
    out->Fixed(flag);
  }
}

StatusOr<std::unique_ptr<Request>> LoadRequest(ByteReader* in) {
  ASSIGN_OR_RETURN(wire::EngineCoreRequest record, UnpackRequest(in));
  std::vector<TokenId> sampled;
  in->List(&sampled);
  ASSIGN_OR_RETURN(std::shared_ptr<const PromptEmbeddings> embeddings, LoadEmbeddings(in));
  RequestNeeds needs;
  ASSIGN_OR_RETURN(needs.images, LoadImages(in));
  Adapter adapter = UnpackAdapter(in);
  const int64_t order = in->Signed();
  if (record.own.num_prior_output_tokens < 0 ||
      record.prompt_token_ids.size() <= static_cast<size_t>(record.own.num_prior_output_tokens)) {
    return DataLossError("request " + record.request_id + " has no prompt");
  }
  auto request = std::make_unique<Request>(std::move(record), order, needs);
  request->token_ids.insert(request->token_ids.end(), sampled.begin(), sampled.end());
  request->extra_keys.embeddings = std::move(embeddings);
  request->extra_keys.adapter = std::move(adapter);
  request->reasoning.Read(request->token_ids);
  request->status = in->Fixed<wire::RequestStatus>();
  request->slot = RequestSlot{static_cast<int32_t>(in->Signed())};
  request->num_computed_tokens = static_cast<int32_t>(in->Signed());
  request->num_preemptions = static_cast<int32_t>(in->Signed());
  in->List(&request->drafts.token_ids);
  request->known = in->Fixed<KnownTokens>();
  request->first_known = in->Fixed<KnownTokens>();
  for (bool* flag : {&request->needs_grammar, &request->mid_prefill, &request->drops_stale_output,
                     &request->has_output, &request->is_passed_over, &request->awaits_adapter}) {
    *flag = in->Fixed<uint8_t>() != 0;
  }
  if (!in->ok()) return DataLossError("request " + request->id() + " is cut off");
  return request;
}

void SaveIds(const std::vector<Request*>& requests, ByteWriter* out) {
  out->Varint(requests.size());
  for (const Request* request : requests) out->Bytes(request->id());
}

}  // namespace

// ---- requests ----

void RequestTable::Save(ByteWriter* out) const {
  CHECK(departed_.empty() && holding_->empty()) << "steps or transfers are in flight";
  out->Signed(num_added_);
  out->Varint(requests_.size());
  for (const Request* request : InOrderOfAdding()) {
    if (!out->fits()) return;  // it would be in vain
    SaveRequest(*request, out);
  }
  SaveIds(running_, out);
  SaveIds(waiting_->InOrder(), out);
  out->List(std::span<const RequestSlot>(free_slots_));
  out->List(std::span<const RequestSlot>(freed_slots_));
  out->Varint(finished_.size());
  for (const FinishedRequest& finished : finished_) {
    out->Bytes(finished.id);
    out->Signed(finished.client_index);
  }
}

Status RequestTable::Load(ByteReader* in) {
  CHECK(requests_.empty());
  num_added_ = in->Signed();
  for (size_t left = in->Count(); left > 0; --left) {
    ASSIGN_OR_RETURN(std::unique_ptr<Request> request, LoadRequest(in));
    NoteWait(*request, false);
    if (request->is_passed_over) ++num_passed_over_;
    adapters_.Enter(request->extra_keys.adapter);
    if (!request->awaits_adapter) ExtendHashes(request.get());
    const RequestId id = request->id();
    if (!requests_.emplace(id, std::move(request)).second) {
      return DataLossError("request " + id + " is there twice");
    }
  }
  size_t num_placed = 0;
  for (const bool is_running : {true, false}) {
    for (size_t left = in->Count(); left > 0; --left) {
      Request* request = Find(RequestId(in->Bytes()));
      if (request == nullptr) return DataLossError("a queue names a request that is not there");
      if (is_running) {
        adapters_.Add(request->adapter_id());
        running_.push_back(request);
      } else {
        waiting_->Add(request);
      }
      ++num_placed;
    }
  }
  in->List(&free_slots_);
  in->List(&freed_slots_);
  for (size_t left = in->Count(); left > 0; --left) {
    RequestId id(in->Bytes());
    finished_.push_back({std::move(id), static_cast<int32_t>(in->Signed())});
  }
  if (!in->ok() || num_placed != requests_.size()) return DataLossError("its queues do not fit");
  return OkStatus();
}

// ---- the whole ----

void Scheduler::Save(ByteWriter* out) const {
  out->Fixed(pause_state_);
  out->Signed(num_steps_);
  out->Fixed(now_);
  cadence_.Save(out);
  pace_.Save(out);
  parts_.encoder_cache.Save(out);
  parts_.requests.Save(out);
  parts_.kv_cache.Save(out);
}

Status Scheduler::Load(ByteReader* in) {
  pause_state_ = in->Fixed<PauseState>();
  num_steps_ = in->Signed();
  now_ = in->Fixed<double>();
  cadence_.Load(in);
  pace_.Load(in);
  RETURN_IF_ERROR(parts_.encoder_cache.Load(in));
  RETURN_IF_ERROR(parts_.requests.Load(in));
  return parts_.kv_cache.Load(in);
}

}  // namespace tandem
