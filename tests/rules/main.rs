//! Rule files: what they say, what is wrong with them, and which requests they are about.

mod ask;
mod by_hand;
mod check;
mod example;
mod faults;
mod hosts;
mod layer;
mod matching;
mod needs;
mod on_change;
mod page;
mod paths;
mod reading;
mod reload;
mod waiting;
mod warnings;
