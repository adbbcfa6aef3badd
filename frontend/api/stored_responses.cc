#include "frontend/api/stored_responses.h"

#include <algorithm>
#include <utility>

#include "common/log_event.h"
#include "common/shorten.h"

namespace tandem {
namespace {

int64_t BytesOf(const std::string& id, const StoredResponse& response) {
  constexpr size_t kEntryBytes = 512;  // list and map nodes, callbacks
  return static_cast<int64_t>(kEntryBytes + 2 * id.size() + response.body.size() +
                              response.conversation.size());
}

Status NotKept(const std::string& id) {
  return NoSuchResponse(id, "It was never stored, was deleted, or made room for newer ones.");
}

}  // namespace

Status NoSuchResponse(std::string_view id, std::string_view why) {
  return NotFoundError("Response with id '" + Shorten(id) + "' not found. " + std::string(why))
      .WithParam("response_id");
}

// ---- Responses that have ended ----

void StoredResponses::Put(const std::string& id, StoredResponse response) {
  if (const auto old = by_id_.find(id); old != by_id_.end()) {
    if (old->second->response->running) return;  // an id that a client sent twice: the first stays
    Drop(old->second);
  }
  const int64_t bytes = BytesOf(id, response);
  if (!MakeRoom(1, bytes)) {
    LOG_EVENT(LogLevel::kWarning, "response not stored")
        .Add("id", id)
        .Add("bytes", bytes)
        .Add("error", "what runs leaves too little room (--max-stored-response-bytes)");
    return;
  }
  SetResponse(Add(id), std::move(response));
}

StatusOr<StoredResponsePtr> StoredResponses::Find(const std::string& id) {
  const Entry* entry = Use(id);
  if (entry == nullptr) return NotKept(id);
  return entry->response;
}

Status StoredResponses::Remove(const std::string& id) {
  Entry* entry = Use(id);
  if (entry == nullptr) return NotKept(id);
  if (entry->stop) std::exchange(entry->stop, nullptr)(OkStatus());
  Drop(by_id_[id]);
  return OkStatus();
}

// ---- Responses that run ----

Status StoredResponses::Begin(const std::string& id, StoredResponse response, bool keeps_events,
                              Stop stop) {
  if (const auto old = by_id_.find(id); old != by_id_.end()) {
    if (old->second->response->running) {
      return AlreadyExistsError("Response with id '" + id + "' is still running.")
          .WithParam("request_id");
    }
    Drop(old->second);
  }
  if (!MakeRoom(1, BytesOf(id, response))) {
    return ResourceExhaustedError("the server already keeps " + std::to_string(num_entries()) +
                                  " responses of " + std::to_string(num_bytes_) +
                                  " bytes, and too many of them still run");
  }
  Entry* const entry = Add(id);
  entry->stop = std::move(stop);
  entry->keeps_events = keeps_events;
  response.running = true;
  SetResponse(entry, std::move(response));
  return OkStatus();
}

void StoredResponses::Update(const std::string& id, std::string body) {
  Entry* entry = Use(id);
  if (entry == nullptr || !entry->response->running) return;
  SetResponse(entry, {std::move(body), entry->response->conversation, /*running=*/true});
}

void StoredResponses::Append(const std::string& id, std::string_view events) {
  Entry* entry = Use(id);
  if (entry == nullptr || !entry->response->running) return;
  constexpr std::string_view kEnd = "\n\n";
  for (size_t at = events.find(kEnd); at != events.npos; at = events.find(kEnd, at)) {
    at += kEnd.size();
    entry->event_ends.push_back(entry->events.size() + at);
  }
  entry->events += events;
  Recount(entry);
  std::erase_if(entry->followers, [&](Follower& follower) { return !follower(events, false); });
  if (!MakeRoom(0, 0) && entry->stop) {
    std::exchange(entry->stop, nullptr)(ResourceExhaustedError(
        "the server keeps " + std::to_string(limits_.num_bytes) +
        " bytes of responses, and this one's events have no room among them"));
  }
}

void StoredResponses::End(const std::string& id, std::string body) {
  Entry* entry = Use(id);
  if (entry == nullptr || !entry->response->running) return;
  entry->stop = nullptr;
  SetResponse(entry, {std::move(body), entry->response->conversation, /*running=*/false});
  const StoredResponsePtr response = entry->response;
  for (Follower& follower : std::exchange(entry->followers, {})) follower({}, true);
  const std::vector<Reply> waiting = std::exchange(entry->waiting, {});
  MakeRoom(0, 0);
  for (const Reply& reply : waiting) reply(response);
}

void StoredResponses::Cancel(const std::string& id, Reply reply) {
  Entry* entry = Use(id);
  if (entry == nullptr) return reply(NotKept(id));
  if (!entry->response->running) {
    return reply(
        FailedPreconditionError("Cannot cancel a synchronous response.").WithParam("response_id"));
  }
  entry->waiting.push_back(std::move(reply));
  if (entry->stop) std::exchange(entry->stop, nullptr)(OkStatus());
}

Status StoredResponses::Follow(const std::string& id, int64_t after, Follower follower) {
  Entry* entry = Use(id);
  if (entry == nullptr) return NotKept(id);
  if (!entry->keeps_events) {
    return FailedPreconditionError(
               "Only the events of a response that was created with background and stream are kept")
        .WithParam("stream");
  }
  const auto num_skipped = static_cast<size_t>(std::max<int64_t>(after + 1, 0));
  if (num_skipped < entry->event_ends.size()) {
    const size_t begin = num_skipped == 0 ? 0 : entry->event_ends[num_skipped - 1];
    follower(std::string_view(entry->events).substr(begin), !entry->response->running);
  } else if (!entry->response->running) {
    follower({}, true);
  }
  if (entry->response->running) entry->followers.push_back(std::move(follower));
  return OkStatus();
}

// ---- The table ----

StoredResponses::Entry* StoredResponses::Use(const std::string& id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return nullptr;
  entries_.splice(entries_.end(), entries_, found->second);
  return &*found->second;
}

StoredResponses::Entry* StoredResponses::Add(const std::string& id) {
  Entry* const entry = &entries_.emplace_back();
  entry->id = id;
  by_id_[id] = std::prev(entries_.end());
  return entry;
}

void StoredResponses::SetResponse(Entry* entry, StoredResponse response) {
  entry->response = std::make_shared<const StoredResponse>(std::move(response));
  Recount(entry);
}

void StoredResponses::Recount(Entry* entry) {
  num_bytes_ -= entry->bytes;
  entry->bytes =
      BytesOf(entry->id, *entry->response) +
      static_cast<int64_t>(entry->events.size() + entry->event_ends.size() * sizeof(size_t));
  num_bytes_ += entry->bytes;
}

void StoredResponses::Drop(Entries::iterator entry) {
  // Nothing else would end what waits for its end.
  for (Follower& follower : entry->followers) follower({}, true);
  for (const Reply& reply : entry->waiting) reply(NotKept(entry->id));
  num_bytes_ -= entry->bytes;
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

bool StoredResponses::MakeRoom(int64_t num_more_entries, int64_t num_more_bytes) {
  const auto fits = [&] {
    return static_cast<int64_t>(entries_.size()) + num_more_entries <= limits_.num_entries &&
           num_bytes_ + num_more_bytes <= limits_.num_bytes;
  };
  if (num_more_bytes > limits_.num_bytes) return false;  // dropping others would not help
  for (auto entry = entries_.begin(); entry != entries_.end() && !fits();) {
    const auto next = std::next(entry);
    if (!entry->response->running) Drop(entry);
    entry = next;
  }
  return fits();
}

}  // namespace tandem
