"""What a run did, as typed values, and how it is shown: tables for people, JSON for programs."""
