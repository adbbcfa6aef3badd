// Another engine core, another frontend: the supervisor's swaps and reloads.

#include <signal.h>

#include <algorithm>
#include <utility>

#include "common/exit_status.h"
#include "common/log.h"
#include "deploy/cli/supervisor.h"

namespace tandem {

std::string_view Supervisor::Tag(const Member& member) {
  return member.is_frontend ? "[reload] " : "[swap] ";
}

void Supervisor::OnControl() {
  std::optional<ControlRequest> request = control_.Accept();
  if (!request) return;
  const std::vector<std::string>& words = request->words();
  const bool is_reload = !words.empty() && words[0] == "reload";
  if (words.size() < 2 || (!is_reload && words[0] != "swap")) {
    return request->End(kExitBadFlags, "a request that this version does not know");
  }
  BeginReplacement(is_reload, std::move(request));
}

// Of several, when this one cannot be replaced; empty: all are as they were.
std::string Supervisor::WhatWasReplaced(const Member& failed,
                                        const std::vector<size_t>& places_after) const {
  const auto is_kind = [&](const Member& each) { return each.is_frontend == failed.is_frontend; };
  const auto num_all =
      static_cast<size_t>(std::count_if(members_.begin(), members_.end(), is_kind));
  const size_t num_replaced = num_all - 1 - places_after.size();
  if (num_replaced == 0) return "";
  return "; " + std::to_string(num_replaced) + " of " + std::to_string(num_all) +
         " engine cores were replaced, the others stay as they are";
}

std::optional<std::string> Supervisor::WhyNotNow(bool of_frontend) {
  const bool has_frontend = members_.front().is_frontend;
  if (of_frontend && !has_frontend) return "the frontend is another command's";
  if (!of_frontend && members_.size() == (has_frontend ? 1 : 0)) {
    return "the engine cores are other commands'";
  }
  const bool one_serves = std::any_of(members_.begin(), members_.end(), [&](const Member& each) {
    return each.is_frontend == of_frontend && IsServing(each);
  });
  if (!ready_ || exit_code_ || !one_serves) return "the server is starting or stopping";
  if (next_) {
    return next_->member.is_frontend ? "another reload is under way" : "another swap is under way";
  }
  const auto leaves = [](const Replacement& each) { return !each.member.is_frontend; };
  // The frontend has two seats for an engine.
  if (!of_frontend && std::any_of(leaving_.begin(), leaving_.end(), leaves)) {
    return "the engine core before still ends its last requests";
  }
  const auto goes_on = [](const Replacement& each) { return !each.places_after.empty(); };
  if (std::any_of(leaving_.begin(), leaving_.end(), goes_on)) return "a swap is under way";
  return std::nullopt;
}

void Supervisor::BeginReplacement(bool of_frontend, std::optional<ControlRequest> asker) {
  if (const std::optional<std::string> why = WhyNotNow(of_frontend)) {
    LOG_WARNING << (of_frontend ? "[reload] " : "[swap] ") << "refused: " << *why;
    if (asker) asker->End(kExitFailed, *why);
    return;
  }
  std::vector<size_t> places;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].is_frontend == of_frontend) places.push_back(i);
  }
  StartReplacement(std::move(places), std::move(asker));
}

// The asker's words: the command, its folder, flags.
void Supervisor::StartReplacement(std::vector<size_t> places, std::optional<ControlRequest> asker) {
  const size_t place = places.front();
  places.erase(places.begin());
  Member& now = members_[place];
  const auto refuse = [&](int exit_status, const std::string& why) {
    LOG_WARNING << Tag(now) << "refused: " << why;
    if (asker) asker->End(exit_status, why + WhatWasReplaced(now, places));
  };
  std::vector<std::string> changes;
  if (asker) changes.assign(asker->words().begin() + 2, asker->words().end());
  const ChangedProgram& change = now.is_frontend ? changed_frontend_ : changed_engine_;
  StatusOr<Program> program = change(now.program, changes, asker ? asker->words()[1] : "");
  if (!program.ok()) return refuse(kExitBadFlags, program.status().message());
  Member next = {.program = *std::move(program),
                 .child = {},
                 .is_frontend = now.is_frontend,
                 .beats = BeatWatch(timeouts_.hang_s)};
  if (const Status status = StartMember(next); !status.ok()) {
    return refuse(kExitFailed, status.message());
  }
  const std::string line =
      next.program.name + " " + std::to_string(next.child.pid()) + " is starting";
  LOG_INFO << Tag(next) << line;
  if (asker) asker->Report(line);
  next_.emplace(Replacement{.member = std::move(next),
                            .place = place,
                            .places_after = std::move(places),
                            .asker = std::move(asker)});
  // One that does not serve has nothing to hand over.
  if (IsServing(now)) return;
  now.start_again_at.reset();
  now.child.Signal(SIGKILL);
}

// Whether a process is about to take over from this member.
bool Supervisor::is_to_follow(const Member& member) const {
  return next_ && &member == &members_[next_->place];
}

void Supervisor::CompleteReplacement() {
  Member& now = members_[next_->place];
  Replacement before = {.member = std::move(now),
                        .place = next_->place,
                        .places_after = std::move(next_->places_after),
                        .asker = std::move(next_->asker)};
  now = std::move(next_->member);
  next_.reset();
  const std::string line =
      now.program.name + " " + std::to_string(now.child.pid()) + " has taken over";
  LOG_INFO << Tag(now) << line;
  if (!before.member.child.running()) {
    return EndReplacement(std::move(before.places_after), std::move(before.asker), line);
  }
  if (before.asker) before.asker->Report(line);
  leaving_.push_back(std::move(before));
}

void Supervisor::EndReplacement(std::vector<size_t> places_after,
                                std::optional<ControlRequest> asker, const std::string& line) {
  if (places_after.empty()) {
    if (asker) asker->End(kExitOk, line);
    return;
  }
  if (asker) asker->Report(line);
  if (exit_code_) {
    if (asker) asker->End(kExitFailed, "the server is stopped");
    return;
  }
  StartReplacement(std::move(places_after), std::move(asker));
}

void Supervisor::GiveUpReplacement(std::string_view why) {
  if (!next_) return;
  LOG_WARNING << Tag(next_->member) << "given up: " << why;
  next_->is_given_up = true;
  next_->member.status = why;
  next_->member.child.Signal(SIGKILL);
}

void Supervisor::OnNextExit(const ChildProcess::Exit& exit) {
  const Replacement next = *std::move(next_);
  next_.reset();
  const std::string line =
      "the new " + next.member.program.name + " " + exit.ToString() + ": " + next.member.status;
  LOG_ERROR << Tag(next.member) << line << "; the one before serves on";
  const bool is_own_end = !exit.clean() && !next.is_given_up;
  if (next.asker) {
    next.asker->End(is_own_end ? exit.code() : kExitFailed,
                    line + WhatWasReplaced(next.member, next.places_after));
  }
  if (exit_code_) return AdvanceStop();
  // It waited for the new one to take its place.
  Member& now = members_[next.place];
  if (!now.child.running()) PlanRestart(now);
}

void Supervisor::OnLeavingExit(const Member& member, const ChildProcess::Exit& exit) {
  const auto left = std::find_if(leaving_.begin(), leaving_.end(),
                                 [&](const Replacement& each) { return &each.member == &member; });
  const std::string line = "the " + left->member.program.name + " before ";
  LOG_INFO << Tag(member) << line << exit.ToString();
  Replacement before = std::move(*left);
  leaving_.erase(left);
  EndReplacement(std::move(before.places_after), std::move(before.asker), line + "has ended");
  if (exit_code_) AdvanceStop();
}

}  // namespace tandem
