#pragma once

// Which images' rows the worker keeps, and which of them a step computes. A chunk of a prompt can
// run when the rows of all images in it are kept or computed with it; otherwise it ends before the
// first image whose rows are not. Rows are shared by all requests with the image, and stay after
// them until others need the room: those that nobody holds are dropped, the ones released first
// at first. The rules are those of vLLM's EncoderCacheManager.
// A step has time for some slices of images (ImageInput::num_slices). An image that takes more is
// computed by several steps, before its rows can be read; there is at most one such image, which
// each step goes on with first. It is computed for the requests that hold it, and for others that
// wait for their admission; when none is left it is dropped. A waiting request does not hold rows
// that are complete: it would keep them from those that run.
// Where images must be whole (attention inside an image goes both ways), no chunk ends inside one.
//
// Thread: engine loop. Pure. Counts are rows unless their name says tokens or slices. Steps run in
// the order in which they are scheduled, so what a later step drops or keeps is right for the
// earlier ones. Always: a request that holds nothing else finds room for one image; an image whose
// rows are kept is not computed.

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/packed_bytes.h"
#include "common/status.h"
#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/scheduler_output.h"

namespace tandem {

class EncoderCache {
 public:
  static constexpr int32_t kAllSlices = std::numeric_limits<int32_t>::max();

  // What can run of a request's next tokens.
  struct Chunk {
    int32_t num_tokens = 0;
    int32_t num_wanted = 0;  // could run if all slices of their images had
    bool awaits_slices() const { return num_tokens < num_wanted; }
  };

  // num_rows: that are kept, and the most that a step begins to compute. needs_whole: see above.
  EncoderCache(int32_t num_rows, bool needs_whole)
      : capacity_(num_rows), needs_whole_(needs_whole) {}
  EncoderCache(const EncoderCache&) = delete;

  // INVALID_ARGUMENT: an image that must be whole has more tokens than a step can take. images:
  // null: none.
  Status Check(const RequestImages* images, int32_t most_tokens) const;
  // Before a request with these images is scheduled: the cache has room for the largest image that
  // it has met.
  void MakeRoomFor(const RequestImages* images);

  // ---- while a step is made ----
  // The step may compute so many slices, and goes on with the image under way.
  void BeginStep(int32_t num_slices = kAllSlices);
  // Of the request's next num_tokens tokens, from position `begin` on. Up to `most` where they
  // would end inside an image that must be whole.
  Chunk ChunkFor(const Request& request, int32_t begin, int32_t num_tokens, int32_t most) const;
  // Its num_tokens run: the request holds the rows that they read, and the step computes those that
  // are not kept. If it awaits slices, the next image that it wants is computed, now or in its
  // turn. REQUIRES: `chunk` is what ChunkFor has returned, or 0 tokens of it; nothing was taken
  // since.
  void Take(const Request& request, int32_t begin, const Chunk& chunk);
  // What this step computes, and what was dropped since the last one.
  void TakeChanges(SchedulerOutput* step);
  bool has_dropped() const { return !dropped_.empty(); }

  // The request no longer holds images that it has computed all tokens of.
  void ReleaseComputed(const Request& request);
  // It holds none while it does not run. An image under way is still computed for it; what only it
  // was to have computed within the step being made is not.
  void Release(const Request& request);
  // The same of a request that has ended: nothing is computed for it.
  void End(const Request& request);
  // Nothing is kept any more.
  void Reset();

  int32_t capacity() const { return capacity_; }
  int32_t num_kept() const { return num_kept_; }  // with those under way
  int32_t num_held() const { return num_held_; }  // likewise
  bool is_under_way() const { return !under_way_.empty(); }

  // For a checkpoint; see Scheduler.
  void Save(ByteWriter* out) const;
  Status Load(ByteReader* in);

 private:
  struct Entry {
    int32_t num_rows = 0;
    int32_t num_slices_left = 0;        // after the step being made; 0: its rows can be read
    std::vector<int64_t> holders = {};  // Request::order
    std::vector<int64_t> waiters = {};  // likewise, while slices are left: they hold nothing else
    int64_t released = 0;               // its key in unheld_; 0: it is held, or under way
    bool is_new = false;                // begun by the step being made
  };
  using Entries = absl::flat_hash_map<std::string, Entry>;

  bool HasRoomFor(const ImageInput& image) const {
    return image.num_rows <= capacity_ - num_held_ && image.num_rows <= budget_;
  }
  void Hold(Entry* entry, int64_t holder);
  void Await(const Request& request, int32_t begin, int32_t end);
  void Begin(const std::shared_ptr<const ImageInput>& image, const Request& request);
  void Compute(const std::string& key, std::shared_ptr<const ImageInput> image, Entry* entry);
  void ReleaseOne(const ImageInput& image, int64_t holder, bool awaits_rest);
  void Unhold(const std::string& key, Entry* entry);
  void DropOldest();
  void Drop(Entries::iterator entry);
  std::vector<std::string> Keys() const;

  int32_t capacity_;
  const bool needs_whole_;
  Entries entries_;                        // by ImageInput::key
  std::map<int64_t, std::string> unheld_;  // keys, the first released first
  int32_t num_kept_ = 0, num_held_ = 0;    // the first counts the second's too
  std::string under_way_;                  // the key of the image with slices left; empty: none
  int32_t budget_ = 0;                     // that this step may still begin with
  int32_t num_slices_ = 0;                 // likewise, slices
  int64_t num_releases_ = 0;
  std::vector<EncoderInput> computed_;  // by the step being made
  std::vector<std::string> dropped_;    // since the last step
};

}  // namespace tandem
